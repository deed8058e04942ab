"""`mempool repro`: driver bugs, proved or ruled out."""

from __future__ import annotations

from pathlib import Path

import click

from mempool_cli.commands.common import FileParam, MempoolCommand, examples, finish, kept, not_traced, print_event
from mempool_cli.commands.settings import settings


@click.command(
    cls=MempoolCommand,
    epilog=examples(
        "mempool repro",
        "mempool repro --report report.json --emit-c bug.c",
        "mempool --sim 4,fault=recycled-handle repro",
    ),
)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--all", "all_bugs", is_flag=True, help="All bugs")
@click.option("--traps", is_flag=True, help="The traps too: documented behaviour that bites")
@click.option("--list", "listed", is_flag=True, help="Show what can be exercised, and what each needs")
@click.option("--owner", metavar="DEV", help="The device of the pools (default: of the first pair that can)")
@click.option("--accessor", metavar="DEV", help="The device that accesses them")
@click.option(
    "--cleanup", metavar="ARM", multiple=True, help="Only this arm; without the one that decides there is no verdict"
)
@click.option(
    "--attempts", type=click.IntRange(16, 100_000), metavar="N", help="Pools to taint in each trial (default: 256)"
)
@click.option("--repeat", type=click.IntRange(1, 1000), default=2, metavar="N", help="Runs of each trial (default: 2)")
@click.option(
    "--limit", type=click.IntRange(1, 86400), default=60, metavar="SECONDS", help="Time for a trial (default: 60)"
)
@click.option(
    "--allow-faults", is_flag=True, help="Of an affected driver: may a kernel fault, to see whether access is enforced?"
)
@click.option("--report", type=FileParam(), metavar="FILE", help="Write a JSON document to attach")
@click.option("--redact", is_flag=True, help="Leave UUIDs, bus ids, serials and the host name out of it")
@click.option("--emit-c", type=FileParam(), metavar="FILE", help="Write the reproduction as a C program (one NAME)")
@click.pass_context
def repro(
    ctx: click.Context,
    names: tuple[str, ...],
    all_bugs: bool,
    traps: bool,
    listed: bool,
    owner: str | None,
    accessor: str | None,
    cleanup: tuple[str, ...],
    attempts: int | None,
    repeat: int,
    limit: int,
    allow_faults: bool,
    report: Path | None,
    redact: bool,
    emit_c: Path | None,
) -> None:
    """Prove that the driver has a known bug, or rule it out.

    Without a NAME it is recycled-handle (nvbug 5698116). Each trial is a process
    of its own; no session is touched. Exit status 1: affected, 0: not affected,
    6: inconclusive, 4: a trial failed. A trap, present or absent, ends with 0.
    """
    from mempool_cli.driver import driver_source
    from mempool_cli.model import Answer
    from mempool_cli.report_file import check_writable
    from mempool_cli.repro.run import Choices, list_bugs, reproduce

    if listed:
        if names or report or emit_c:
            raise click.UsageError("--list runs nothing: no NAME, --report or --emit-c with it", ctx)
        finish(ctx, Answer(result=list_bugs()))
    wanted = _wanted(ctx, names, all_bugs=all_bugs, traps=traps)
    if emit_c and len(wanted) != 1:
        raise click.UsageError("--emit-c writes one program: give one NAME", ctx)
    if redact and not report:
        raise click.UsageError("--redact is about --report", ctx)
    not_traced(ctx)
    check_writable(emit_c, report)
    source = driver_source(settings(ctx).sim)
    if allow_faults and source.sim is None:
        from mempool_cli.alone import check_alone

        check_alone()
    choices = Choices(
        owner=owner,
        accessor=accessor,
        attempts=attempts,
        repeat=repeat,
        limit=limit,
        arms=cleanup,
        allow_faults=allow_faults,
    )
    found = reproduce(source, wanted, choices, print_event)
    answer = found.answer
    if report:
        from mempool_cli.repro.report import write_report

        answer = kept(answer, lambda: write_report(report, found, redact=redact))
    if emit_c:
        from mempool_cli.repro import find_bug
        from mempool_cli.repro.report import write_program

        answer = kept(answer, lambda: write_program(emit_c, find_bug(wanted[0]), choices, found))
    finish(ctx, answer)


def _wanted(ctx: click.Context, names: tuple[str, ...], *, all_bugs: bool, traps: bool) -> list[str]:
    """The ids: those named, else all of the kinds asked for, else the one that everybody asks about."""
    from mempool_cli.repro import DEFAULT
    from mempool_cli.repro.run import list_bugs

    if names and (all_bugs or traps):
        raise click.UsageError("names, or --all and --traps", ctx)
    kinds = [kind for kind, asked in (("bug", all_bugs), ("trap", traps)) if asked]
    return [bug.id for bug in list_bugs().bugs if bug.kind in kinds] or list(names or [DEFAULT])
