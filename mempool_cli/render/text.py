"""An answer as lines of text: for stdout the result, for stderr its warnings and its failure."""

from __future__ import annotations

from rich.text import Text

from mempool_cli.errors import Problem
from mempool_cli.model import (
    AccessChange,
    AccessMatrix,
    Answer,
    AnyResult,
    BugList,
    CheckList,
    CheckReport,
    CurrentPool,
    DeviceList,
    Diagnosis,
    Difference,
    PoolCreated,
    PoolDetail,
    PoolList,
    PoolsDestroyed,
    ReproReport,
    SessionList,
    SessionStatus,
    SessionStopped,
    VerifyReport,
)
from mempool_cli.render import changes, checks, reproductions, sessions, tables, verification
from mempool_cli.render.diagnosis import diagnosis
from mempool_cli.render.difference import difference
from mempool_cli.render.layout import folded, line
from mempool_cli.render.matrix import matrix
from mempool_cli.render.scope import scope, simulated


def result_lines(answer: Answer, *, as_matrix: bool, quiet: bool, verbose: bool, width: int | None) -> list[Text]:
    """What goes to stdout: the label of a simulated answer, the result, its scope; empty without a result.

    `quiet` leaves of a new pool only its name; `width` is the terminal's, None for natural width.
    """
    if answer.result is None:
        return []
    if quiet and isinstance(answer.result, PoolCreated):
        return [line(answer.result.pool.name)]
    lines = body(answer.result, as_matrix=as_matrix, verbose=verbose, width=width)
    if label := simulated(answer):
        lines.insert(0, line((label, "bold magenta")))
    if words := scope(answer):
        if isinstance(answer.result, DeviceList | PoolList | PoolDetail | AccessMatrix):
            lines.append(line())
        lines += [line(part) for part in words.splitlines()]
    return folded(lines, width)


def note_lines(answer: Answer, *, quiet: bool, width: int | None) -> list[Text]:
    """What goes to stderr: the label where stdout has none, warnings, then the failure."""
    lines: list[Text] = []
    label = simulated(answer)
    if label and (answer.result is None or (quiet and isinstance(answer.result, PoolCreated))):
        lines.append(line((label, "bold magenta")))
    for notice in answer.result.warnings if answer.result else ():
        lines.append(line(("warning:", "bold magenta"), f" {notice.message} [{notice.code}]"))
    return folded(lines, width) + (problem_lines(answer.problem, width) if answer.problem else [])


def problem_lines(problem: Problem, width: int | None) -> list[Text]:
    """A failure in its four parts: code, what happened, the driver's words, what to try."""
    lines = [line(("error:", "bold red"), f" {problem.message} [{problem.code}]")]
    if problem.driver:
        lines.append(line(f"  driver: {problem.driver}"))
    if problem.hint:
        lines.append(line(f"  try: {problem.hint}"))
    return folded(lines, width)


def body(  # noqa: C901 - one arm a type
    result: AnyResult, *, as_matrix: bool, verbose: bool, width: int | None
) -> list[Text]:
    """The result alone."""
    match result:
        case DeviceList():
            return tables.devices(result, width)
        case PoolList():
            return tables.pools(result, width)
        case PoolDetail():
            return tables.detail(result, width)
        case AccessMatrix():
            return matrix(result, width) if as_matrix else tables.access(result)
        case AccessChange():
            return changes.access_change(result)
        case PoolCreated():
            return changes.created(result)
        case CurrentPool():
            return changes.current(result)
        case PoolsDestroyed():
            return changes.destroyed(result)
        case SessionList():
            return sessions.sessions(result, width)
        case SessionStatus():
            return sessions.status(result)
        case SessionStopped():
            return sessions.stopped(result)
        case ReproReport():
            return reproductions.report(result, width)
        case BugList():
            return reproductions.bugs(result, width)
        case CheckReport():
            return checks.report(result, width, verbose=verbose)
        case CheckList():
            return checks.catalogue(result, width)
        case Diagnosis():
            return diagnosis(result, verbose=verbose)
        case Difference():
            return difference(result)
        case VerifyReport():
            return verification.report(result, width, verbose=verbose)
