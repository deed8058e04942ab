"""The global options: before or after the subcommand, or from a MEMPOOL_... variable."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import click

from mempool_cli import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

DEFAULT_SESSION = "default"
_LONGEST_SECONDS = 86400.0
_OFF = ("", "0", "false", "no")


@dataclass(frozen=True)
class Settings:
    """The global options of one command; None where the option was not given."""

    sim: str | None = None
    session: str | None = None
    no_session: bool | None = None
    format: Literal["table", "json"] | None = None
    color: Literal["auto", "always", "never"] | None = None
    trace: bool | None = None
    timeout: float | None = None
    wait: float | None = None


def completed_by(function: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completion by this function of the completion module, which is loaded only then."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from mempool_cli.commands import completion

        found: list[CompletionItem] = getattr(completion, function)(ctx, incomplete)
        return found

    return complete


def _flag(value: str) -> bool:
    return value.strip().lower() not in _OFF


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"mempool {__version__}")
        ctx.exit()


class Seconds(click.ParamType[float]):
    """A time to wait, up to a day."""

    name = "seconds"

    def __init__(self, least: float = 0.0) -> None:
        self._least = least

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds, more than 0 and not below the least."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = 0.0
        if not (0 < seconds <= _LONGEST_SECONDS and seconds >= self._least):  # nan is neither
            limits = f"from {self._least:g} to" if self._least else "up to"
            self.fail(f"{value!r} is no time; write seconds, {limits} {_LONGEST_SECONDS:.0f}", param, ctx)
        return seconds


def global_options() -> list[click.Option]:
    """The options that work before and after the subcommand; fresh objects each time."""
    return [
        click.Option(
            ["--sim"],
            metavar="SPEC",
            shell_complete=completed_by("complete_machines"),
            help="Use a simulated machine: 4, dgx-h200, ./machine.toml, ...",
        ),
        click.Option(
            ["--session"],
            metavar="NAME",
            shell_complete=completed_by("complete_sessions"),
            help="The session or program to ask; `create` and `grant` start a session",
        ),
        click.Option(["--no-session"], is_flag=True, default=None, help="Do it in this process alone"),
        click.Option(["--format"], type=click.Choice(["table", "json"]), help="What stdout gets (default: table)"),
        click.Option(
            ["--color"], type=click.Choice(["auto", "always", "never"]), help="When to colour (default: auto)"
        ),
        click.Option(["--trace"], is_flag=True, default=None, help="Show each driver call on stderr"),
        click.Option(
            ["--timeout"],
            type=Seconds(),
            metavar="SECONDS",
            help="How long to wait for a session's answer (default: 60)",
        ),
        click.Option(
            ["--wait"],
            type=Seconds(),
            metavar="SECONDS",
            help="Wait so long for a program to start and to initialise CUDA (default: 0)",
        ),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Show the version",
        ),
    ]


GLOBAL_NAMES = tuple(field.name for field in fields(Settings))
ENVIRONMENT = {
    "sim": "MEMPOOL_SIM",
    "session": "MEMPOOL_SESSION",
    "no_session": "MEMPOOL_NO_SESSION",
    "format": "MEMPOOL_FORMAT",
    "color": "MEMPOOL_COLOR",
    "trace": "MEMPOOL_TRACE",
    "timeout": "MEMPOOL_TIMEOUT",
    "wait": "MEMPOOL_WAIT",
}


def settings(ctx: click.Context) -> Settings:
    """The global options in force: after the subcommand, else before it, else from the environment."""
    given: dict[str, Any] = {}
    levels: list[click.Context] = []
    level: click.Context | None = ctx
    while level is not None:
        levels.insert(0, level)
        level = level.parent
    for level in levels:
        here = {name: level.params[name] for name in GLOBAL_NAMES if level.params.get(name) is not None}
        if "session" in here and here.get("no_session"):
            raise click.UsageError("--session and --no-session exclude each other", ctx)
        if "session" in here:
            given.pop("no_session", None)
        if here.get("no_session"):
            given.pop("session", None)
        given |= here
    return Settings(**(_from_environment(ctx, given) | given))


def given_session(ctx: click.Context) -> str | None:
    """The name given on this command line: one in the environment is that of a session around this one."""
    level: click.Context | None = ctx
    while level is not None:
        if level.params.get("session"):
            return str(level.params["session"])
        level = level.parent
    return None


def _from_environment(ctx: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """MEMPOOL_... variables for what was not given; they are checked as the options are."""
    found: dict[str, Any] = {}
    options = {option.name: option for option in global_options()}
    for name, variable in ENVIRONMENT.items():
        value = os.environ.get(variable, "")
        if name in given or not value:
            continue
        if (name == "session" and given.get("no_session")) or (name == "no_session" and "session" in given):
            continue
        option = options[name]
        try:
            found[name] = _flag(value) if option.is_flag else option.type.convert(value, option, ctx)
        except click.BadParameter as error:
            raise click.UsageError(f"{variable}: {error.message}", ctx) from error
    if found.get("no_session"):
        found.pop("session", None)
    return found
