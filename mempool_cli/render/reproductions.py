"""Driver bugs: which there are, and what was proved."""

from __future__ import annotations

from rich.text import Text

from mempool_cli.model import BugList, Reproduction, ReproReport, ReproTrial
from mempool_cli.render.layout import grid, line

_STYLES = {"affected": "bold red", "present": "yellow", "failed": "bold red", "inconclusive": "bold yellow"}


def bugs(result: BugList, width: int | None) -> list[Text]:
    """A block a bug."""
    lines: list[Text] = []
    for bug in result.bugs:
        facts = [("needs", each) for each in bug.needs] + [("source", each) for each in bug.sources]
        lines += [line((bug.id, "bold"), f"  {bug.kind}: {bug.title}"), *grid(None, facts, indent="  ")]
    return lines


def report(result: ReproReport, width: int | None) -> list[Text]:
    """A block a bug and kind of pool: the verdict, then a line a trial."""
    lines: list[Text] = []
    for one in result.reproductions:
        if lines:
            lines.append(line())
        lines += _reproduction(one, width)
    return lines


def _reproduction(one: Reproduction, width: int | None) -> list[Text]:
    verdict = (one.verdict, _STYLES.get(one.verdict, "green"))
    lines = [line((one.bug, "bold"), f": {one.title}"), line(f"{_where(one)}: ", verdict, f": {one.why}")]
    if one.enforced:
        lines.append(line(f"  is access enforced all the same: {one.enforced}"))
    if one.trials:
        head = ("arm", "history", "run", "verdict", "answered", "why")
        lines += grid(head, [_row(trial) for trial in one.trials], indent="  ", width=width)
    return lines


def _where(one: Reproduction) -> str:
    if one.accessor is None:
        return f"{one.variant} pools"
    place = "the host" if one.owner is None else f"device {one.owner}"
    return f"pools on {place}, accessed by device {one.accessor}"


def _row(trial: ReproTrial) -> tuple[str, ...]:
    cleared = ", ".join(f"{each.name} {each.count} times" for each in trial.cleared) or "-"
    return trial.arm, trial.history, str(trial.repeat), trial.verdict, cleared, trial.why
