"""`mempool session`: the background process that holds pools between commands."""

from __future__ import annotations

import click

from mempool_cli.commands.common import GlobalOptionsInBrief, MempoolCommand, examples, finish, print_event, waiting_for
from mempool_cli.commands.settings import DEFAULT_SESSION, given_session, global_options, settings


def _idle_timeout(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    # The help page, which has the default as text, must not load what else sessions need.
    from mempool_cli.session import MAX_IDLE_SECONDS

    return None if value is None else click.IntRange(0, MAX_IDLE_SECONDS).convert(value, param, ctx)


class Session(GlobalOptionsInBrief, click.Group):
    """The subcommands in the order of a session's life."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the help page."""
        return ["start", "status", "list", "run", "stop"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options in brief, then the subcommands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


session = Session(
    "session",
    help="""Start, stop and look at sessions, which hold the pools.

    A session is a process that holds pools and grants between commands: they
    die with their process. `create` and `grant` start the session they need; it
    ends on `stop` or after 30 idle minutes.
    """,
    params=[*global_options()],
    epilog=examples("mempool session start", "mempool session run -- ./test.sh", "mempool session stop"),
)


@session.command(cls=MempoolCommand, epilog=examples("mempool session start --idle-timeout 600"))
@click.option(
    "--idle-timeout",
    type=int,
    callback=_idle_timeout,
    metavar="SECONDS",
    help="End after so many idle seconds, up to a year (default: 1800; 0: never)",
)
@click.option("--foreground", is_flag=True, help="Be the session, until Ctrl-C or `stop`")
@click.pass_context
def start(ctx: click.Context, idle_timeout: int | None, foreground: bool) -> None:
    """Start a session, or show the one that runs."""
    from mempool_cli.driver import driver_source
    from mempool_cli.model import Answer, SessionStatus
    from mempool_cli.session import lifecycle

    chosen = settings(ctx)
    name, source = chosen.session or DEFAULT_SESSION, driver_source(chosen.sim)
    if not foreground:
        with waiting_for(f"session {name}"):
            found = lifecycle.start(
                name, source, idle_timeout=idle_timeout, timeout=chosen.timeout, on_event=print_event
            )
        finish(ctx, Answer(result=found))

    def announce(ready: SessionStatus) -> None:
        finish(ctx, Answer(result=ready), leave=False)

    lifecycle.serve_here(name, source, idle_timeout=idle_timeout, on_ready=announce, on_event=print_event)


@session.command(cls=MempoolCommand, epilog=examples("mempool session stop", "mempool session stop --kill"))
@click.option("--kill", is_flag=True, help="End one that does not answer; its pools go without cleanup")
@click.pass_context
def stop(ctx: click.Context, kill: bool) -> None:
    """Destroy a session's pools and end it; detach from a program."""
    from mempool_cli.driver import driver_source
    from mempool_cli.model import Answer
    from mempool_cli.session import lifecycle

    chosen = settings(ctx)
    name = chosen.session or DEFAULT_SESSION
    with waiting_for(f"session {name}"):
        stopped = lifecycle.stop(name, driver_source(chosen.sim), kill=kill, timeout=chosen.timeout)
    finish(ctx, Answer(result=stopped))


@session.command(cls=MempoolCommand, epilog=examples("mempool session status"))
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show one session or program."""
    from mempool_cli.driver import driver_source
    from mempool_cli.model import Answer
    from mempool_cli.session import lifecycle

    chosen = settings(ctx)
    name = chosen.session or DEFAULT_SESSION
    with waiting_for(f"session {name}"):
        found = lifecycle.status(name, driver_source(chosen.sim), timeout=chosen.timeout)
    finish(ctx, Answer(result=found))


@session.command("list", cls=MempoolCommand, epilog=examples("mempool session list", "mempool --sim 4 session list"))
@click.pass_context
def list_sessions(ctx: click.Context) -> None:
    """List the sessions and programs; with --sim the simulated sessions."""
    from mempool_cli.driver import driver_source
    from mempool_cli.model import Answer
    from mempool_cli.session import lifecycle

    # A SPEC that names no machine is not about sessions at all.
    source = driver_source(settings(ctx).sim)
    finish(ctx, Answer(result=lifecycle.list_sessions(simulated=source.sim is not None)))


@session.command(
    cls=MempoolCommand,
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "mempool session run -- ./test.sh", "mempool --sim 4 session run -- sh -c 'mempool grant 0 --to 1'"
    ),
)
@click.argument("command", metavar="CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(ctx: click.Context, command: tuple[str, ...]) -> None:
    """Run a command with a session of its own.

    The command finds the session through MEMPOOL_SESSION; it is stopped when
    the command ends. Its exit status is the exit status here, as in a shell:
    127 when it is not found, 126 when it cannot be run.
    """
    from mempool_cli.driver import driver_source
    from mempool_cli.session.command import run_with_session

    chosen = settings(ctx)
    ctx.exit(run_with_session(command, driver_source(chosen.sim), print_event, name=given_session(ctx)))
