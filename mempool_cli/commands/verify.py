"""`mempool verify`: does access really work."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from mempool_cli.commands.common import FileParam, MempoolCommand, examples, finish, kept, not_traced
from mempool_cli.commands.settings import settings
from mempool_cli.commands.sizes import Size
from mempool_cli.commands.words import DeviceWords

_LONG = 8
_LARGEST = 1 << 34
_SIZES = (1 << 20, 16 << 20)


def _checked(ctx: click.Context, param: click.Parameter, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """8 bytes, and those asked for."""
    for size in sizes:
        if size < _LONG or size % _LONG:
            raise click.BadParameter(f"{size} bytes: a size is a multiple of {_LONG}", ctx, param)
    return tuple(sorted({_LONG, *sizes}))


@click.command(
    cls=MempoolCommand,
    epilog=examples(
        "mempool verify",
        "mempool verify --owner 0 --accessor 1 2 --verbose",
        "mempool verify --host --allow-faults",
        "mempool --sim dgx-h200,fault=mirror:2-5 verify",
    ),
)
@click.option("--owner", cls=DeviceWords, help="Owners of the memory: devices, host, numa:0 (default: all devices)")
@click.option("--accessor", cls=DeviceWords, help="Devices that access it (default: all)")
@click.option("--host", is_flag=True, help="Pools in host memory, too")
@click.option(
    "--size",
    "sizes",
    type=Size(largest=_LARGEST),
    multiple=True,
    default=_SIZES,
    callback=_checked,
    metavar="SIZE",
    help="After 8 bytes; can be given several times (default: 1MiB and 16MiB)",
)
@click.option(
    "--repeat", type=click.IntRange(1, 1000), default=2, metavar="N", help="Tries of each path and size (default: 2)"
)
@click.option(
    "--limit", type=click.IntRange(1, 86400), default=30, metavar="SECONDS", help="Time for a try (default: 30)"
)
@click.option(
    "--jobs", type=click.IntRange(1, 512), metavar="N", help="Pairs side by side (default: as many as processors)"
)
@click.option("--allow-faults", is_flag=True, help="Is access enforced: may a kernel without access fault?")
@click.option("-v", "--verbose", is_flag=True, help="Show every path")
@click.option("--report", type=FileParam(), metavar="FILE", help="Write a JSON document, pair by pair")
@click.option("--redact", is_flag=True, help="Leave UUIDs, bus ids, serials and the host name out of it")
@click.pass_context
def verify(
    ctx: click.Context,
    owner: tuple[str, ...],
    accessor: tuple[str, ...],
    host: bool,
    sizes: tuple[int, ...],
    repeat: int,
    limit: int,
    jobs: int | None,
    allow_faults: bool,
    verbose: bool,
    report: Path | None,
    redact: bool,
) -> None:
    """Check that access really works, byte by byte.

    For each device and each other one that can access its memory: a pool is made,
    access granted and read back, and data goes by kernels and by copies, both
    ways. Every pair is tried in a process of its own; no session is touched.
    Exit status 1: a pair does not work, 6: not known, or nothing was tested.
    """
    from mempool_cli.driver import driver_source
    from mempool_cli.errors import MempoolError
    from mempool_cli.model import Answer, PairResult
    from mempool_cli.render.progress import Progress
    from mempool_cli.report_file import ReportFile, check_writable
    from mempool_cli.verify import run
    from mempool_cli.verify.pair import Choices

    if redact and not report:
        raise click.UsageError("--redact is about --report", ctx)
    not_traced(ctx)
    check_writable(report)
    wanted = run.Wanted(owners=owner, accessors=accessor, host=host, jobs=jobs)
    choices = Choices(sizes=sizes, repeat=repeat, limit=limit, allow_faults=allow_faults)
    planned = run.plan(driver_source(settings(ctx).sim), wanted, choices)
    file = ReportFile(report, "verify", redact=redact) if report else None
    if isinstance(planned, Answer):
        failed = planned
        finish(ctx, kept(failed, lambda: file.write(failed, ())) if file else failed)
        return
    with Progress(len(planned.pairs), color=settings(ctx).color or "auto") as progress:

        def on_pair(pair: PairResult, so_far: Answer) -> None:
            progress.done(f"{pair.name}: {pair.verdict}")
            if file:
                with contextlib.suppress(MempoolError):  # the last one tells
                    file.write(so_far, planned.machine.devices)

        answer = run.verify(planned, on_pair)
    if file:
        written = file
        answer = kept(answer, lambda: written.write(answer, planned.machine.devices))
    finish(ctx, answer, verbose=verbose)
