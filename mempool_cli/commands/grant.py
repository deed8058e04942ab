"""`mempool grant`."""

from __future__ import annotations

import click

from mempool_cli.commands.common import Host, MempoolCommand, examples, pool_argument, run
from mempool_cli.commands.words import DeviceWords


@click.command(
    cls=MempoolCommand,
    epilog=examples("mempool grant 0 --to 1 2", "mempool grant train --to all", "mempool grant 0 --to 1 --only"),
)
@pool_argument()
@click.option("--to", cls=DeviceWords, required=True, help="Devices, all or peers")
@click.option("--only", is_flag=True, help="Exactly these devices: others lose access")
@click.option("--force", is_flag=True, help="Try devices that cannot reach the pool, too")
@click.option("--dry-run", is_flag=True, help="Print the plan, change nothing")
@click.pass_context
def grant(ctx: click.Context, pool: str, to: tuple[str, ...], only: bool, force: bool, dry_run: bool) -> None:
    """Give devices access to a pool, in one cuMemPoolSetAccess.

    DEV is an ordinal, a range (1-3), a UUID or its beginning, a PCI bus id, `all` (every other device) or
    `peers` (those that can).
    """
    from mempool_cli.requests import Grant

    run(ctx, Grant(pool=pool, to=to, only=only, force=force, dry_run=dry_run), Host.LOCAL if dry_run else Host.START)
