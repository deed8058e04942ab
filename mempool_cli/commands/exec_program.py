"""`mempool exec`: a program under an agent."""

from __future__ import annotations

import re
from pathlib import Path

import click

from mempool_cli.commands.common import FileParam, MempoolCommand, examples, print_event
from mempool_cli.commands.settings import given_session, settings
from mempool_cli.commands.words import split_devices

_OWNER = r"(?:[0-9]{1,9}|(?:GPU|MIG)-[0-9a-f-]+)"
_DEVICE = rf"(?:[0-9]{{1,9}}-[0-9]{{1,9}}|all|peers|{_OWNER})"
_GRANT = re.compile(rf"{_OWNER}:{_DEVICE}(?:,{_DEVICE})*", re.IGNORECASE)


class GrantParam(click.ParamType[str]):
    """OWNER:DEV,...: devices that get access to the owner's default pool."""

    name = "grant"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The same with ranges taken apart; which devices there are is known when CUDA is initialised."""
        if not _GRANT.fullmatch(value):
            self.fail(f"{value!r} is not OWNER:DEV,DEV..., as 0:1,2 or GPU-8fc8:all", param, ctx)
        owner, _, devices = value.partition(":")
        assert param is not None
        assert ctx is not None
        return f"{owner}:{','.join(split_devices(ctx, param, [devices]))}"


@click.command(
    "exec",
    cls=MempoolCommand,
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "mempool exec --name train -- python train.py",
        "mempool exec --grant 0:1-3 --grant 1:all -- torchrun train.py",
    ),
)
@click.option("--name", metavar="N", help="The name of the program, for --session (default: program)")
@click.option(
    "--grant",
    "grants",
    type=GrantParam(),
    multiple=True,
    metavar="OWNER:DEV,...",
    help="Grant access to the owner's default pool as soon as the program has initialised CUDA",
)
@click.option(
    "--probe-at-exit",
    type=FileParam(),
    metavar="FILE",
    help="Write the access matrix there when the program exits",
)
@click.argument("command", metavar="CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def exec_program(
    ctx: click.Context, name: str | None, grants: tuple[str, ...], probe_at_exit: Path | None, command: tuple[str, ...]
) -> None:
    """Run a program whose pools mempool can see and set.

    Python interpreters in it start an agent: `mempool --session N probe` is then
    about the pools of that process. Child interpreters are N.PID. The exit
    status is the program's; as in a shell 127 when it is not found, 126 when it
    cannot be run. `mempool --session N session stop` detaches the agent.
    """
    from mempool_cli.agent.launch import become_program

    chosen = settings(ctx)
    if chosen.sim is not None:
        raise click.UsageError("a program uses the CUDA driver of this machine: no --sim (or MEMPOOL_SIM) here", ctx)
    status = become_program(
        command,
        name or given_session(ctx) or "program",
        print_event,
        grants=grants,
        matrix_file=probe_at_exit,
        matrix_format="json" if probe_at_exit and probe_at_exit.suffix == ".json" else chosen.format or "table",
    )
    ctx.exit(status)
