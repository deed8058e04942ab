"""`mempool probe --watch`: asks again and again, and shows what changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from mempool_cli.commands.common import Host, asked, check_text, choose_runner, finish, output, print_event
from mempool_cli.commands.settings import settings

if TYPE_CHECKING:
    from mempool_cli.model import Answer
    from mempool_cli.requests import Probe


def watch(ctx: click.Context, request: Probe, seconds: float, *, matrix: bool) -> None:
    """Until a signal ends it, the host ends, or there is no answer any more."""
    chosen = settings(ctx)
    if chosen.no_session:
        raise click.UsageError("--watch is about a session or a program: --no-session has neither", ctx)
    finish(ctx, _watched(ctx, request, seconds, matrix=matrix), matrix=matrix)


def _watched(ctx: click.Context, request: Probe, seconds: float, *, matrix: bool) -> Answer:
    """The answer without a matrix that ended it; MempoolError when the host did."""
    from mempool_cli.model import AccessMatrix
    from mempool_cli.render.watching import Watching

    check_text(ctx, request)
    chosen = settings(ctx)
    deadline = time.monotonic() + (chosen.wait or 0)
    runner, _ = choose_runner(chosen, Host.NEED)
    answer = first = asked(runner, request, chosen, deadline)
    if not isinstance(answer.result, AccessMatrix):
        return answer
    with Watching(ctx.obj().command, output(chosen, matrix=matrix), in_place=not chosen.trace) as shown:
        while isinstance(answer.result, AccessMatrix):
            _check_same(first, answer)
            shown.show(answer)
            shown.pause(seconds)
            answer = runner.run(request, print_event, trace=bool(chosen.trace))
    return answer


def _check_same(first: Answer, now: Answer) -> None:
    from mempool_cli.errors import MempoolError

    was, where = first.where, now.where
    if was and where and was.pid != where.pid:
        raise MempoolError(
            "no-session",
            f"{was.kind} {was.name} (pid {was.pid}) has ended; another of that name runs (pid {where.pid})",
            hint="watch again",
        )
