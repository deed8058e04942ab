"""`mempool devices`."""

from __future__ import annotations

import click

from mempool_cli.commands.common import Host, MempoolCommand, examples, run


@click.command(cls=MempoolCommand, epilog=examples("mempool devices", "mempool --sim dgx-h200 devices"))
@click.pass_context
def devices(ctx: click.Context) -> None:
    """List the devices, their pool support and their peers."""
    from mempool_cli.requests import Devices

    run(ctx, Devices(), Host.LOCAL)
