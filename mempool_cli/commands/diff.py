"""`mempool diff`: what changed since a snapshot."""

from __future__ import annotations

from pathlib import Path

import click

from mempool_cli.commands.common import FileParam, MempoolCommand, examples, finish, waiting_for
from mempool_cli.commands.settings import settings


@click.command(cls=MempoolCommand, epilog=examples("mempool diff before.json", "mempool diff before.json after.json"))
@click.argument("old", metavar="OLD", type=FileParam())
@click.argument("new", metavar="[NEW]", type=FileParam(), required=False)
@click.pass_context
def diff(ctx: click.Context, old: Path, new: Path | None) -> None:
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

    before = read(str(old))
    if new is not None:
        after = read(str(new))
        finish(ctx, Answer(driver=after.driver, result=compare(before, after, old=str(old), new=str(new))))
    with waiting_for("CUDA and NVML"):
        now = take(driver_source(settings(ctx).sim))
    finish(ctx, Answer(driver=now.driver, result=compare(before, now, old=str(old), new=None)))
