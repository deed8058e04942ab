"""`mempool list`."""

from __future__ import annotations

import click

from mempool_cli.commands.common import Host, MempoolCommand, examples, run


@click.command("list", cls=MempoolCommand, epilog=examples("mempool list"))
@click.pass_context
def list_pools(ctx: click.Context) -> None:
    """List the pools: default, current and created ones."""
    from mempool_cli.requests import List

    run(ctx, List(), Host.LOCAL)
