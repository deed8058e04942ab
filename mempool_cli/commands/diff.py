"""`mempool diff`: what changed since a snapshot."""

from __future__ import annotations

import click

from mempool_cli.commands.common import MempoolCommand, examples, finish, waiting_for
from mempool_cli.commands.settings import settings


@click.command(cls=MempoolCommand, epilog=examples("mempool diff before.json", "mempool diff before.json after.json"))
@click.argument("old", metavar="OLD", type=click.Path())
@click.argument("new", metavar="[NEW]", type=click.Path(), required=False)
@click.pass_context
def diff(ctx: click.Context, old: str, new: str | None) -> None:
    """Say what changed from one snapshot to another.

    Without NEW: to this machine as it is now. Devices go by their UUID, so a
    card that moved to another slot is one change. Exit status 1: something
    changed, 6: nothing did, and no device could be compared.
    """
    from mempool_cli.driver import driver_source
    from mempool_cli.model import Answer
    from mempool_cli.snapshot.compare import compare
    from mempool_cli.snapshot.document import read
    from mempool_cli.snapshot.take import take

    before = read(old)
    if new is not None:
        after = read(new)
        finish(ctx, Answer(driver=after.driver, result=compare(before, after, old=old, new=new)))
    with waiting_for("CUDA and NVML"):
        now = take(driver_source(settings(ctx).sim))
    finish(ctx, Answer(driver=now.driver, result=compare(before, now, old=old, new=None)))
