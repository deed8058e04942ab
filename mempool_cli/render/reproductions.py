"""Driver bugs: which there are, and what was proved."""

from __future__ import annotations

from rich.text import Text

from mempool_cli.model import BugList, Reproduction, ReproReport, ReproTrial
from mempool_cli.render.layout import grid, line

_HEAD = ("arm", "history", "run", "verdict", "answered", "why")
_STYLES = {"affected": "bold red", "present": "magenta", "failed": "bold red", "inconclusive": "bold magenta"}


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
        table = grid(_HEAD, [_row(trial) for trial in one.trials], indent="  ")
        fits = width is None or max(part.cell_len for part in table) <= width
        lines += table if fits else [each for trial in one.trials for each in _narrow(trial)]
    return lines


def _narrow(trial: ReproTrial) -> list[Text]:
    """The same as a sentence, where the table has no room."""
    arm, history, run, verdict, answered, why = _row(trial)
    lines = [line(f"  {arm}, {history}, run {run}: {verdict}: {why}")]
    return lines if answered == "-" else [*lines, line(f"    answered: {answered}")]


def _where(one: Reproduction) -> str:
    if one.accessor is None:
        return f"{one.variant} pools"
    place = "the host" if one.owner is None else f"device {one.owner}"
    return f"pools on {place}, accessed by device {one.accessor}"


def _row(trial: ReproTrial) -> tuple[str, ...]:
    cleared = ", ".join(f"{each.name} {_times(each.count)}" for each in trial.cleared) or "-"
    return trial.arm, trial.history, str(trial.repeat), trial.verdict, cleared, trial.why


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
