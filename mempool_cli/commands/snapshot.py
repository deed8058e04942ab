"""`mempool snapshot`: the machine as one JSON document."""

from __future__ import annotations

from pathlib import Path

import click

from mempool_cli.commands.common import FileParam, MempoolCommand, examples, waiting_for
from mempool_cli.commands.settings import settings


@click.command(
    cls=MempoolCommand,
    epilog=examples("mempool snapshot -o before.json", "mempool diff before.json   # after snapshot, what changed"),
)
@click.option("-o", "--output", type=FileParam(), metavar="FILE", help="Write it there, not to stdout")
@click.option("--redact", is_flag=True, help="Leave UUIDs, bus ids, serials and the host name out of it")
@click.pass_context
def snapshot(ctx: click.Context, output: Path | None, redact: bool) -> None:
    """Print the machine as one JSON document.

    Driver, devices, capability and access of default pools by UUID, and the
    findings of `mempool doctor`. Always JSON, whatever --format says. A machine
    whose driver does not start is a snapshot too: exit status 0.
    """
    from mempool_cli.driver import driver_source
    from mempool_cli.render import print_document
    from mempool_cli.report_file import check_writable, write_text
    from mempool_cli.snapshot.document import text_of
    from mempool_cli.snapshot.take import take

    check_writable(output)
    with waiting_for("CUDA and NVML"):
        taken = take(driver_source(settings(ctx).sim))
    text = text_of(taken, redact=redact)
    if output:
        write_text(output, text)
    else:
        print_document(text)
