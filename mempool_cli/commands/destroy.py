"""`mempool destroy`."""

from __future__ import annotations

import click

from mempool_cli.commands.common import Host, MempoolCommand, examples, pool_argument, run


@click.command(cls=MempoolCommand, epilog=examples("mempool destroy train", "mempool destroy pool-1 pool-2"))
@pool_argument(many=True)
@click.option("--no-cleanup", is_flag=True, help="Leave the peers' access as it is")
@click.pass_context
def destroy(ctx: click.Context, pools: tuple[str, ...], no_cleanup: bool) -> None:
    """Destroy pools, after taking access away from their peers.

    A pool destroyed with peers can pass their access on to the next pool that gets its handle.
    """
    from mempool_cli.requests import Destroy

    run(ctx, Destroy(pools=pools, cleanup=not no_cleanup), Host.NEED)
