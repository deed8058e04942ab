"""`mempool create`."""

from __future__ import annotations

import click

from mempool_cli.commands.common import Host, MempoolCommand, examples, run
from mempool_cli.commands.settings import completed_by
from mempool_cli.commands.sizes import Size
from mempool_cli.commands.words import DeviceWords


@click.command(
    cls=MempoolCommand, epilog=examples("mempool create 0 --name train --to 1 2", "mempool create host --max-size 1GiB")
)
@click.argument("location", shell_complete=completed_by("complete_locations"))
@click.option("--name", help="Its name (default: pool-1, pool-2, ...)")
@click.option(
    "--max-size", type=Size(largest=1 << 62), default=0, metavar="SIZE", help="Largest size (default: the driver's)"
)
@click.option("--release-threshold", type=Size(), default=0, metavar="SIZE", help="Bytes kept when idle (default: 0)")
@click.option("--to", cls=DeviceWords, help="Devices that get access, all or peers")
@click.option("-q", "--quiet", is_flag=True, help="Print the name alone")
@click.pass_context
def create(
    ctx: click.Context,
    location: str,
    name: str | None,
    max_size: int,
    release_threshold: int,
    to: tuple[str, ...],
    quiet: bool,
) -> None:
    """Create a pool on a device, the host or a NUMA node.

    LOCATION is a device (its ordinal, UUID or bus id), `host`, or `numa:0`.
    SIZE is a number of bytes, or has a unit: 64MiB, 1GiB, 1GB. The pool lives in the
    session until it is destroyed.
    """
    from mempool_cli.requests import Create

    run(
        ctx,
        Create(
            location=location,
            name=name,
            max_size=max_size,
            release_threshold=release_threshold,
            to=to,
        ),
        Host.START,
        quiet=quiet,
    )
