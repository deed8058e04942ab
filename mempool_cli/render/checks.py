"""Checks: failures with their evidence, gaps with their reason, passes in one line."""

from __future__ import annotations

from rich.text import Text

from mempool_cli.model import CheckCase, CheckList, CheckReport, CheckResult
from mempool_cli.render.layout import Part, grid, line

_STYLES = {"passed": "green", "failed": "bold red", "error": "bold red", "skipped": "magenta"}
_MANY = 4


def catalogue(result: CheckList, width: int | None) -> list[Text]:
    """A line a check."""
    return grid(("check", "what"), [(check.id, check.title) for check in result.checks], width=width)


def report(result: CheckReport, width: int | None, *, verbose: bool) -> list[Text]:
    """What is bad first; with `verbose` a line a case instead."""
    if verbose:
        return _every_case(result, width)
    lines: list[Text] = []
    for outcome in ("failed", "error"):
        for check in result.checks:
            lines += _bad(check, outcome)
    for check in result.checks:
        lines += _skipped(check)
    passed = [_passed(check) for check in result.checks if any(case.outcome == "passed" for case in check.cases)]
    return [*lines, line(("passed", "green"), f": {', '.join(passed)}")] if passed else lines


def _bad(check: CheckResult, outcome: str) -> list[Text]:
    cases = [case for case in check.cases if case.outcome == outcome]
    if not cases:
        return []
    head = line((outcome, _STYLES[outcome]), ": ", (check.id, "bold"), f": {check.title}")
    return [head, *(line(f"  {case.name}: {_why(case)}") for case in cases)]


def _why(case: CheckCase) -> str:
    return f"{case.why} [{case.driver}]" if case.driver else case.why


def _skipped(check: CheckResult) -> list[Text]:
    """A line a reason."""
    reasons: dict[tuple[str, bool], list[str]] = {}
    for case in check.cases:
        if case.outcome == "skipped":
            reasons.setdefault((case.why, case.expected), []).append(case.name)
    lines = []
    for (why, expected), names in reasons.items():
        shown = ", ".join(names[:_MANY]) + (f" and {len(names) - _MANY} more" if len(names) > _MANY else "")
        wanted = ", as the policy says" if expected else ""
        lines.append(line(("skipped", _STYLES["skipped"]), f": {check.id}: {shown}: {why}{wanted}"))
    return lines


def _passed(check: CheckResult) -> str:
    count = sum(case.outcome == "passed" for case in check.cases)
    return f"{check.id} ({count})" if len(check.cases) > 1 else check.id


def _every_case(result: CheckReport, width: int | None) -> list[Text]:
    rows: list[tuple[Part, ...]] = [
        (check.id, (case.outcome, _STYLES[case.outcome]), case.name, _why(case))
        for check in result.checks
        for case in check.cases
    ]
    return grid(("check", "outcome", "case", "why"), rows, width=width)
