"""`mempool show`."""

from __future__ import annotations

import click

from mempool_cli.commands.common import Host, MempoolCommand, examples, pool_argument, run


@click.command(cls=MempoolCommand, epilog=examples("mempool show 0", "mempool show train"))
@pool_argument()
@click.pass_context
def show(ctx: click.Context, pool: str) -> None:
    """Show one pool: its attributes and who may access it."""
    from mempool_cli.requests import Show

    run(ctx, Show(pool=pool), Host.LOCAL)
