"""`mempool check`: is this machine as it should be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mempool_cli.commands.common import FileParam, MempoolCommand, examples, finish, kept, not_traced
from mempool_cli.commands.settings import settings

if TYPE_CHECKING:
    from mempool_cli.survey import Survey


@click.command(
    cls=MempoolCommand,
    epilog=examples(
        "mempool check",
        "mempool check --data --junit result.xml",
        "mempool check --init > machine.toml",
        "mempool check machine.toml",
    ),
)
@click.argument("policy", metavar="[POLICY]", required=False, type=FileParam())
@click.option("--list", "listed", is_flag=True, help="Show the checks")
@click.option("--init", is_flag=True, help="Print the policy of this machine")
@click.option("--select", metavar="ID", multiple=True, help="Only these checks, by id or glob")
@click.option("--skip", metavar="ID", multiple=True, help="Not these checks, nor those that the policy skips")
@click.option("--data", is_flag=True, help="Check that data gets through, too (mempool verify)")
@click.option("--require-devices", type=click.IntRange(1, 1024), metavar="N", help="Fail below so many devices")
@click.option("--allow-skips", is_flag=True, help="Pass although pairs could not be checked")
@click.option("--limit", type=click.IntRange(1, 86400), metavar="SECONDS", help="Time for a trial (default: 60)")
@click.option("--junit", type=FileParam(), metavar="FILE", help="Write JUnit XML")
@click.option("-v", "--verbose", is_flag=True, help="Show every case")
@click.pass_context
def check(
    ctx: click.Context,
    policy: Path | None,
    listed: bool,
    init: bool,
    select: tuple[str, ...],
    skip: tuple[str, ...],
    data: bool,
    require_devices: int | None,
    allow_skips: bool,
    limit: int | None,
    junit: Path | None,
    verbose: bool,
) -> None:
    """Check that this machine is as it should be.

    Without a POLICY these are the standard checks. A POLICY is a TOML file that
    says what the machine must be; --init prints that of this one. Each check runs
    in processes of its own; no session is touched. Exit status 1: a check failed,
    4: one ended in an error, 6: a pair could not be checked, or nothing was.
    """
    from mempool_cli.check.catalogue import chosen, fits, list_checks
    from mempool_cli.check.policy import read_policy
    from mempool_cli.check.run import Machine, run_checks
    from mempool_cli.driver import driver_source
    from mempool_cli.errors import MempoolError
    from mempool_cli.model import Answer, CheckReport, CheckResult
    from mempool_cli.render.annotations import annotate
    from mempool_cli.render.progress import Progress
    from mempool_cli.report_file import check_writable
    from mempool_cli.survey import look

    unused = "--junit" if junit else "POLICY" if policy else None
    if unused and (listed or init):
        raise MempoolError("usage", f"{unused} with --{'list' if listed else 'init'}: nothing is checked")
    if listed:
        finish(ctx, Answer(result=list_checks()))
    rules = read_policy(str(policy)) if policy else None
    wanted = rules.checks if rules else None
    if wanted:
        chosen(wanted.select, wanted.skip, data=wanted.data, source=str(policy))
    checks = chosen(
        select or (wanted.select if wanted else ()),
        (*(wanted.skip if wanted else ()), *skip),
        data=data or bool(wanted and wanted.data and not fits("data", skip)),
        devices=require_devices is not None,
    )
    not_traced(ctx)
    check_writable(junit)
    if junit:
        from mempool_cli.check.junit import begin_junit

        begin_junit(junit)
    source = driver_source(settings(ctx).sim)
    if init:
        _print_policy(ctx, look(source))
        return
    seconds = limit or (rules.limits.seconds if rules else 60)

    def machine() -> Machine:
        return Machine(source, look(source), rules, require_devices, seconds)

    with Progress(len(checks), color=settings(ctx).color or "auto") as progress:

        def on_check(result: CheckResult) -> None:
            progress.done(f"{result.id}: {result.outcome}")

        answer = run_checks(checks, machine, str(policy) if policy else None, on_check, skips_allowed=allow_skips)
    report = answer.result
    assert isinstance(report, CheckReport)
    annotate(report)
    if junit:
        from mempool_cli.check.junit import write_junit

        answer = kept(answer, lambda: write_junit(junit, answer, report))
    finish(ctx, answer, verbose=verbose)


def _print_policy(ctx: click.Context, seen: Survey) -> None:
    from mempool_cli.check.policy import policy_of
    from mempool_cli.errors import Problem
    from mempool_cli.model import Answer

    if seen.failure:
        finish(ctx, Answer(driver=seen.driver, failure=seen.failure))
    if any(device.peers_unknown for device in seen.devices):
        message = "the driver did not say of some pairs whether they are capable: no policy can be made of that"
        finish(ctx, Answer(driver=seen.driver, failure=Problem(code="unreadable-cells", message=message)))
    click.echo(policy_of(seen.driver, seen.devices), nl=False)
