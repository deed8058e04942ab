"""`mempool doctor`: why this machine cannot."""

from __future__ import annotations

import click

from mempool_cli.commands.common import MempoolCommand, examples, finish, waiting_for
from mempool_cli.commands.settings import settings


@click.command(
    cls=MempoolCommand, epilog=examples("mempool doctor", "mempool doctor -v", "mempool --sim pcie-4 doctor")
)
@click.option("-v", "--verbose", is_flag=True, help="Show evidence and hints of what is ok, too")
@click.pass_context
def doctor(ctx: click.Context, verbose: bool) -> None:
    """Find out why this machine cannot, or that it can.

    The driver, its devices, their pools and P2P, and the host under them: a line
    a finding, ok, warn or fail. Reads only, and makes no CUDA context. Exit
    status 3: something fails.
    """
    from mempool_cli.doctor.run import diagnose
    from mempool_cli.driver import driver_source

    with waiting_for("CUDA and NVML"):
        answer = diagnose(driver_source(settings(ctx).sim))
    finish(ctx, answer, verbose=verbose)
