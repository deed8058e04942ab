"""`mempool revoke`."""

from __future__ import annotations

import click

from mempool_cli.commands.common import Host, MempoolCommand, examples, pool_argument, run
from mempool_cli.commands.words import DeviceWords


@click.command(cls=MempoolCommand, epilog=examples("mempool revoke 0 --from 1", "mempool revoke train --from all"))
@pool_argument()
@click.option("--from", "devices", cls=DeviceWords, required=True, help="Devices, all or peers")
@click.option("--dry-run", is_flag=True, help="Print the plan, change nothing")
@click.pass_context
def revoke(ctx: click.Context, pool: str, devices: tuple[str, ...], dry_run: bool) -> None:
    """Take access to a pool away from devices.

    Nothing is waited for: a kernel that works on the pool's memory at that moment faults, and its context is lost
    (seen with memory of the host).
    """
    from mempool_cli.requests import Revoke

    run(ctx, Revoke(pool=pool, devices=devices, dry_run=dry_run), Host.LOCAL if dry_run else Host.NEED)
