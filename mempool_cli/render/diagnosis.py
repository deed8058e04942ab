"""Why a machine cannot: a line a finding, and below it what was read and what to try."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from mempool_cli.model import Diagnosis, Finding
from mempool_cli.render.layout import line

_STYLES = {"ok": "green", "warn": "bold magenta", "fail": "bold red"}


def diagnosis(result: Diagnosis, *, verbose: bool) -> list[Text]:
    """Evidence and hints of what is not ok, with `verbose` of all."""
    topics = max((len(finding.topic) for finding in result.findings), default=0)
    return [row for finding in result.findings for row in _finding(finding, topics, verbose=verbose)]


def _finding(finding: Finding, topics: int, *, verbose: bool) -> Iterator[Text]:
    yield line((f"{finding.level:4}", _STYLES[finding.level]), f"  {finding.topic:{topics}}  {finding.text}")
    if verbose or finding.level != "ok":
        hints = (f"try: {finding.hint}",) if finding.hint else ()
        for text in (*finding.evidence, *hints):
            yield line(" " * (len("fail") + 2 + topics + 2) + text)
