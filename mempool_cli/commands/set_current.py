"""`mempool set-current`."""

from __future__ import annotations

import click

from mempool_cli.commands.common import Host, MempoolCommand, examples, pool_argument, run


@click.command(
    "set-current",
    cls=MempoolCommand,
    epilog=examples("mempool set-current train", "mempool set-current 0  # the default pool again"),
)
@pool_argument()
@click.pass_context
def set_current(ctx: click.Context, pool: str) -> None:
    """Make a pool the one that its device allocates from."""
    from mempool_cli.requests import SetCurrent

    run(ctx, SetCurrent(pool=pool), Host.NEED)
