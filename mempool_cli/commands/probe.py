"""`mempool probe`."""

from __future__ import annotations

import click

from mempool_cli.commands.common import Host, MempoolCommand, examples, pool_argument, run


@click.command(cls=MempoolCommand, epilog=examples("mempool probe --matrix", "mempool probe 0 train"))
@pool_argument(many=True, required=False)
@click.option("--matrix", is_flag=True, help="Draw pools by devices instead of one line a pool")
@click.pass_context
def probe(ctx: click.Context, pools: tuple[str, ...], matrix: bool) -> None:
    """Ask the driver who may access which pool.

    The answers are those of cuMemPoolGetAccess. Without POOL: every pool that can be named.
    """
    from mempool_cli.requests import Probe

    run(ctx, Probe(pools=pools), Host.LOCAL, matrix=matrix)
