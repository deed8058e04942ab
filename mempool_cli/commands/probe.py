"""`mempool probe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from mempool_cli.commands.common import (
    FileParam,
    Host,
    MempoolCommand,
    answer_to,
    examples,
    finish,
    kept,
    pool_argument,
)
from mempool_cli.commands.settings import Seconds

if TYPE_CHECKING:
    from mempool_cli.model import Answer
    from mempool_cli.render.picture import Ending
    from mempool_cli.requests import Probe

_ENDINGS = (".svg", ".html", ".txt")


def _checked(ctx: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """A file whose ending says what to write."""
    if file and file.suffix.lower() not in _ENDINGS:
        endings = f"{', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        raise click.BadParameter(f"{file} is no name that ends in {endings}", ctx, param)
    return file


@click.command(
    cls=MempoolCommand,
    epilog=examples(
        "mempool probe --matrix",
        "mempool probe 0 train",
        "mempool probe --matrix --save matrix.svg",
        "mempool --session train probe --matrix --watch",
    ),
)
@pool_argument(many=True, required=False)
@click.option("--matrix", is_flag=True, help="Draw pools by devices instead of one line a pool")
@click.option(
    "--save",
    type=FileParam(),
    metavar="FILE",
    callback=_checked,
    help="Write what is shown to FILE too, for a bug report: .svg, .html or .txt",
)
@click.option(
    "--watch",
    type=Seconds(least=0.1),
    is_flag=False,
    flag_value="1",
    metavar="[SECONDS]",
    help="Ask again every second, or SECONDS, and show what changes; POOL goes before it, or after SECONDS",
)
@click.pass_context
def probe(ctx: click.Context, pools: tuple[str, ...], matrix: bool, save: Path | None, watch: float | None) -> None:
    """Ask the driver who may access which pool.

    The answers are those of cuMemPoolGetAccess. Without POOL: every pool that can
    be named. --watch is about a session or a program, keeps an idle session from
    ending, and lasts until Ctrl-C, or until that ends: exit status 5.
    """
    from mempool_cli.requests import Probe

    request = Probe(pools=pools)
    if watch is None:
        finish(ctx, _answer(ctx, request, save, matrix=matrix), matrix=matrix)
    elif save:
        raise click.UsageError("--save or --watch", ctx)
    else:
        from mempool_cli.commands.watch import watch as watch_access

        watch_access(ctx, request, watch, matrix=matrix)


def _answer(ctx: click.Context, request: Probe, file: Path | None, *, matrix: bool) -> Answer:
    """The answer, shown in the file too, if there is one and anything to show."""
    if file is None:
        return answer_to(ctx, request, Host.LOCAL)
    from mempool_cli.render.picture import saved
    from mempool_cli.report_file import check_writable, write_text

    check_writable(file)
    answer = answer_to(ctx, request, Host.LOCAL)
    if answer.result is None:
        return answer
    text = saved(answer, cast("Ending", file.suffix.lower()), command=ctx.command_path, matrix=matrix)
    return kept(answer, lambda: write_text(file, text))
