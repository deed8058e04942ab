"""What every command shares: its class, the choice of a runner, and the one way to a result."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mempool_cli.commands.settings import DEFAULT_SESSION, GLOBAL_NAMES, Settings, global_options, settings
from mempool_cli.commands.words import Eater, open_option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mempool_cli.driver import DriverSource
    from mempool_cli.errors import Problem
    from mempool_cli.model import Answer, Event
    from mempool_cli.render import Output
    from mempool_cli.requests import AnyRequest, Runner

_STATUS_AFTER_SECONDS = 0.5
_AGAIN_SECONDS = 0.05


class GlobalOptionsInBrief(click.Command):
    """A help page that names the global options in one line; `mempool --help` explains them."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options, and one line for the global ones."""
        own = [
            record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            and param.name not in (*GLOBAL_NAMES, "version")
            and (record := param.get_help_record(ctx))
        ]
        with formatter.section("Options"):
            formatter.write_dl(own)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("and those of `mempool --help`: --sim, --session, --format, --trace, ...")


class MempoolCommand(GlobalOptionsInBrief, Eater):
    """A subcommand: takes the global options too, and completes devices where an option would eat them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options()

    def invoke(self, ctx: click.Context) -> Any:
        """Calls the command with its own options; `settings` reads the global ones from the context."""
        own = {name: value for name, value in ctx.params.items() if name not in GLOBAL_NAMES}
        return ctx.invoke(self.callback, **own) if self.callback else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Devices when an option is eating words, else what click offers."""
        from mempool_cli.commands.completion import complete_devices

        if open_option(ctx) and not incomplete.startswith("-"):
            return complete_devices(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


Cleanup = Callable[[], "tuple[Problem, ...]"]
"""Gives up what a runner holds; what would not go."""


class Host(Enum):
    """Where a command does its work when no session runs."""

    START = "start one: the result must outlive the command"
    LOCAL = "this process: a question about a fresh process is still an answer"
    NEED = "nowhere: there can be nothing to change"


def run(ctx: click.Context, request: AnyRequest, host: Host, *, matrix: bool = False, quiet: bool = False) -> None:
    """Runs the request where it belongs, emits the result and ends the command with its exit status."""
    finish(ctx, answer_to(ctx, request, host), matrix=matrix, quiet=quiet)


def answer_to(ctx: click.Context, request: AnyRequest, host: Host) -> Answer:
    """The answer to the request, from where it belongs."""
    check_text(ctx, request)
    chosen = settings(ctx)
    deadline = time.monotonic() + (chosen.wait or 0)
    runner, close = choose_runner(chosen, host)
    try:
        answer = asked(runner, request, chosen, deadline)
    except BaseException:
        close()
        raise
    return _with_cleanup(answer, close())


def asked(runner: Runner, request: AnyRequest, chosen: Settings, deadline: float) -> Answer:
    """The answer; with --wait, that of a program that has initialised CUDA, if it does so in time."""
    with waiting_for("the program to initialise CUDA" if chosen.wait else "the driver's answer"):
        while True:
            answer = runner.run(request, print_event, trace=bool(chosen.trace))
            early = answer.failure is not None and answer.failure.code == "not-initialised"
            if not early:
                return answer
            if time.monotonic() > deadline:
                return _with_children(answer)
            time.sleep(_AGAIN_SECONDS)


def _with_children(answer: Answer) -> Answer:
    """The answer of a program that has not initialised CUDA, its hint naming other processes of that program."""
    from msgspec import structs

    from mempool_cli.session import lifecycle

    assert answer.where is not None
    assert answer.failure is not None
    others = [name for name in lifecycle.programs() if name.startswith(f"{answer.where.name}.")]
    if not others:
        return answer
    hint = f"another process of it may have: {', '.join(f'`--session {name}`' for name in others)}"
    return structs.replace(answer, failure=structs.replace(answer.failure, hint=f"{hint}; {answer.failure.hint}"))


def _with_cleanup(answer: Answer, problems: tuple[Problem, ...]) -> Answer:
    """The answer, and as its failure what of this process's pools would not go, if nothing else failed."""
    from msgspec import structs

    return structs.replace(answer, failure=problems[0]) if problems and not answer.problem else answer


def check_text(ctx: click.Context, request: AnyRequest) -> None:
    """No pool and no device can have a name that is not text, and a session could not even be asked for it."""
    from msgspec import json

    try:
        json.encode(request)
    except UnicodeEncodeError as error:
        raise click.UsageError(f"a word of the command line is no UTF-8: {error.object!r}", ctx) from error


def finish(
    ctx: click.Context,
    answer: Answer,
    *,
    matrix: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    leave: bool = True,
) -> None:
    """Emits the answer and, unless told to stay, ends the command with its exit status."""
    from msgspec import structs

    from mempool_cli.render import emit

    chosen, line = settings(ctx), ctx.obj()
    if answer.problem:
        answer = structs.replace(answer, failure=line.with_options(answer.problem))
    status = emit(line.command, answer, output=output(chosen, matrix=matrix, quiet=quiet, verbose=verbose))
    if leave:
        ctx.exit(status)


def output(chosen: Settings, *, matrix: bool = False, quiet: bool = False, verbose: bool = False) -> Output:
    """How the user wants to see a result."""
    from mempool_cli.render import Output

    return Output(
        format=chosen.format or "table", color=chosen.color or "auto", matrix=matrix, quiet=quiet, verbose=verbose
    )


def kept(answer: Answer, write: Callable[[], None]) -> Answer:
    """The answer, after something was written beside it: what cannot be written must not cost what was found.

    It becomes the answer's failure, or a warning beside the one that it has.
    """
    from msgspec import structs

    from mempool_cli.errors import MempoolError
    from mempool_cli.model import Event, Notice

    try:
        write()
    except MempoolError as error:
        problem = error.problem
        if answer.problem is None:
            return structs.replace(answer, failure=problem)
        if answer.result is None:
            print_event(Event("status", problem.message))
            return answer
        notice = Notice(problem.code, problem.message)
        warnings = (*answer.result.warnings, notice)
        return structs.replace(answer, result=structs.replace(answer.result, warnings=warnings))
    return answer


def not_traced(ctx: click.Context) -> None:
    """Says that --trace shows nothing here, where it is asked for."""
    from mempool_cli.model import Event

    if settings(ctx).trace:
        print_event(Event("status", "--trace: the calls of trials, in processes of their own, are not shown"))


def choose_runner(chosen: Settings, host: Host) -> tuple[Runner, Cleanup]:
    """Who runs the request, and what to call when it is done. MempoolError `no-session` when nobody can."""
    from mempool_cli.driver import driver_source

    source = driver_source(chosen.sim)
    if not chosen.no_session:
        from mempool_cli.session import client, lifecycle

        name = chosen.session or DEFAULT_SESSION
        with waiting_for(f"session {name}"):
            if chosen.wait and chosen.session:
                lifecycle.appears(name, source, chosen.wait)
            if host is Host.START:
                found: client.SessionRunner | None = lifecycle.open_or_start(name, source, timeout=chosen.timeout)
            else:
                found = lifecycle.find(name, source, timeout=chosen.timeout)
        if found is not None:
            return found, tuple  # the session holds on to its pools
        if host is Host.NEED or chosen.session:
            raise lifecycle.no_session(name, simulated=chosen.sim is not None)
        lifecycle.tell_end(name, simulated=chosen.sim is not None, on_event=print_event)
        lifecycle.tell_programs(simulated=chosen.sim is not None, on_event=print_event)
    return local_runner(source)


def local_runner(source: DriverSource) -> tuple[Runner, Cleanup]:
    """A runner in this process, and the cleanup of what it made."""
    from mempool_cli.model import Where
    from mempool_cli.operations import LocalRunner

    where = Where(kind="local", pid=os.getpid())
    runner = LocalRunner(source, lambda: where)
    return runner, runner.close


def print_event(event: Event) -> None:
    """Shows on stderr what happens while a request runs."""
    from mempool_cli.render import print_event

    print_event(event)


@contextlib.contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Says on stderr what is waited for when that takes more than half a second, as a grant on big pools may."""

    def still_waiting() -> None:
        from mempool_cli.model import Event

        print_event(Event("status", f"waiting for {what}..."))

    timer = threading.Timer(_STATUS_AFTER_SECONDS, still_waiting)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class PoolParam(click.ParamType[str]):
    """POOL: a name, a device's default pool, `default:DEV`, `current:DEV`."""

    name = "pool"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word itself: the runner knows the pools."""
        if not value:
            self.fail("POOL is empty", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Pools of a running host; devices where an option is eating words."""
        from mempool_cli.commands.completion import complete_devices, complete_pools

        return complete_devices(ctx, incomplete) if open_option(ctx) else complete_pools(ctx, incomplete)


class FileParam(click.Path):
    """A file by its name: an empty one, of a variable that is not set say, is not the directory we are in."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; a usage error where it is empty."""
        if value == "":
            self.fail("the name of the file is empty", param, ctx)
        return super().convert(value, param, ctx)


def pool_argument(*, many: bool = False, required: bool = True) -> Callable[[Any], Any]:
    """The POOL argument."""
    if many:
        metavar = "POOL..." if required else "[POOL]..."
        return click.argument("pools", metavar=metavar, type=PoolParam(), nargs=-1, required=required)
    return click.argument("pool", metavar="POOL", type=PoolParam())


def examples(*lines: str) -> str:
    """The epilog of a help page."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
