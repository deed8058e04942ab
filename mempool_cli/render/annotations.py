"""What GitHub shows beside a job: a line a failed case, where the environment says that it is GitHub's."""

from __future__ import annotations

import os
import sys

from mempool_cli.model import CheckReport
from mempool_cli.render.stream import write_note
from mempool_cli.render.words import visible

_LEVELS = {"failed": "error", "error": "error", "skipped": "warning"}


def annotate(report: CheckReport) -> None:
    """Writes them to stderr, which GitHub reads too. Never raises."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    for line in as_commands(report):
        write_note(sys.stderr, line + "\n")


def as_commands(report: CheckReport) -> list[str]:
    """A line for each case that is bad, or skipped and should not be."""
    lines = []
    for check in report.checks:
        gaps = check.gaps if check.of_pairs and not report.skips_allowed else ()
        for case in check.cases:
            if case.outcome in ("failed", "error") or case in gaps:
                answer = f" [{case.driver}]" if case.driver else ""
                message = f"{case.name}: {case.why}{answer}"
                title = _property(f"mempool check {check.id}")
                lines.append(f"::{_LEVELS[case.outcome]} title={title}::{_data(message)}")
    return lines


def _data(text: str) -> str:
    return visible(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
