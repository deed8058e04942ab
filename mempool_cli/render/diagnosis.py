"""Why a machine cannot: a line a finding, and below it what was read and what to try."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.text import Text

from mempool_cli.model import Diagnosis, Finding
from mempool_cli.render.layout import Part, line
from mempool_cli.render.words import visible

_STYLES = {"ok": "green", "warn": "bold yellow", "fail": "bold red"}
_NARROWEST = 20


def diagnosis(result: Diagnosis, width: int | None, *, verbose: bool) -> list[Text]:
    """Evidence and hints of what is not ok, with `verbose` of all; folded at `width`, None for natural width."""
    topics = max((len(finding.topic) for finding in result.findings), default=0)
    return [row for finding in result.findings for row in _finding(finding, topics, width, verbose=verbose)]


def _finding(finding: Finding, topics: int, width: int | None, *, verbose: bool) -> Iterator[Text]:
    head: list[Part] = [(f"{finding.level:4}", _STYLES[finding.level]), f"  {finding.topic:{topics}}  "]
    indent = len("fail") + 2 + topics + 2
    first, *more = _folded(finding.text, width, indent)
    yield line(*head, first)
    if verbose or finding.level != "ok":
        for evidence in finding.evidence:
            more += _folded(evidence, width, indent)
        more += _folded(f"try: {finding.hint}", width, indent) if finding.hint else []
    for text in more:
        yield line(" " * indent + text)


def _folded(text: str, width: int | None, indent: int) -> list[str]:
    """The text in lines that fit; a word that does not is left whole, to be copied."""
    text = visible(text)
    if width is None:
        return [text]
    room = max(width - indent, _NARROWEST)
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
