"""The program: runs the command line; the one place where an exception becomes an exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Literal

import click

from mempool_cli.commands import cli
from mempool_cli.errors import INTERRUPTED, READER_GONE, TERMINATED, MempoolError, Problem

if TYPE_CHECKING:
    from mempool_cli.model import Answer


class Terminated(BaseException):
    """SIGTERM arrived; raised so that every cleanup on the way out runs."""


def main() -> None:
    """Runs sys.argv and exits with its status."""
    _open_standard_streams()
    signal.signal(signal.SIGTERM, _terminate)
    status = run(sys.argv[1:])
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Runs the command line and returns its exit status; nothing is raised and no traceback is printed."""
    try:
        status = _invoke(arguments)
        sys.stdout.flush()
        return status
    except click.exceptions.NoArgsIsHelpError as error:
        return _no_arguments(arguments, error)
    except click.ClickException as error:
        return _fail(arguments, _usage(error), error.ctx if isinstance(error, click.UsageError) else None)
    except MempoolError as error:
        if error.problem.code == "output":
            return _output_failed(error.problem)
        return _fail(arguments, error.problem)
    except KeyboardInterrupt:
        return _interrupted()
    except Terminated:
        return TERMINATED
    except BrokenPipeError:
        _silence_stdout()
        return READER_GONE
    except OSError as error:
        _silence_stdout()
        return _output_failed(Problem(code="output", message=f"could not write: {error.strerror or error}"))
    except Exception as error:
        return _fail(arguments, _internal(error))


def _invoke(arguments: Sequence[str]) -> int:
    """As `cli.main`, which would exit with status 1 when the reader of stdout went away."""
    wanted = os.environ.get("_MEMPOOL_COMPLETE")
    if wanted:
        from mempool_cli.commands.completion import answer

        return answer(cli, wanted)
    try:
        with cli.make_context("mempool", list(arguments)) as ctx:
            return cli.invoke(ctx) or 0
    except click.exceptions.Exit as end:
        return end.exit_code


def _open_standard_streams() -> None:
    """A closed descriptor gets /dev/null, for reading: no file or socket lands there, and writing still fails."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDONLY)  # takes the lowest free descriptor: this one
            setattr(sys, name, os.fdopen(fd, mode))


def _no_arguments(arguments: Sequence[str], error: click.exceptions.NoArgsIsHelpError) -> int:
    if _wants_json(arguments):
        return _fail(arguments, _usage(error, "Missing command."), error.ctx)
    from mempool_cli.render.stream import write_note

    write_note(sys.stderr, error.format_message() + "\n")
    return error.exit_code


def _interrupted() -> int:
    if sys.stderr.isatty():
        sys.stderr.write("\n")  # ends the line on which the terminal shows ^C
    return INTERRUPTED


def _output_failed(problem: Problem) -> int:
    """stdout cannot carry the failure, in whatever format: stderr gets it as text."""
    from mempool_cli.render import print_problem

    print_problem(problem)
    return problem.exit


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise Terminated


def _silence_stdout() -> None:
    """The interpreter flushes stdout at its end, and would complain and exit 120."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _usage(error: click.ClickException, message: str | None = None) -> Problem:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"see `{ctx.command_path} --help`" if ctx else "see `mempool --help`"
    return Problem(code="usage", message=message or error.format_message().strip(), hint=hint)


def _internal(error: Exception) -> Problem:
    if os.environ.get("MEMPOOL_DEBUG", "") not in ("", "0"):
        import traceback

        traceback.print_exc()
    return Problem(
        code="internal",
        message=f"internal error: {type(error).__name__}: {error}",
        hint="this is a fault of mempool: please report it with the command and the output of MEMPOOL_DEBUG=1",
    )


def _fail(arguments: Sequence[str], problem: Problem, ctx: click.Context | None = None) -> int:
    """Emits a failure that no runner answered for, in the format that the arguments asked for."""
    from mempool_cli.model import Answer

    return _emit(arguments, _command(arguments, ctx), Answer(failure=problem))


def _emit(arguments: Sequence[str], command: str, answer: Answer) -> int:
    from mempool_cli.render import Output, emit

    output = Output(format="json" if _wants_json(arguments) else "table", color=_color(arguments))
    try:
        return emit(command, answer, output=output)
    except BrokenPipeError:
        _silence_stdout()
        return READER_GONE
    except MempoolError as error:
        return _output_failed(error.problem)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether JSON was asked for, also when the rest of the command line cannot be read."""
    return _last_value(arguments, "--format", os.environ.get("MEMPOOL_FORMAT", "")) == "json"


def _color(arguments: Sequence[str]) -> Literal["auto", "always", "never"]:
    value = _last_value(arguments, "--color", os.environ.get("MEMPOOL_COLOR", ""))
    return "always" if value == "always" else "never" if value == "never" else "auto"


def _last_value(arguments: Sequence[str], option: str, default: str) -> str:
    value = default
    words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    for position, word in enumerate(words):
        if word == option and position + 1 < len(words):
            value = words[position + 1]
        elif word.startswith(f"{option}="):
            value = word.removeprefix(f"{option}=")
    return value


def _command(arguments: Sequence[str], ctx: click.Context | None) -> str:
    """The subcommand that failed, as the envelope names it; empty when there is none."""
    if ctx is not None:
        return ctx.command_path.partition(" ")[2]
    names: list[str] = []
    command: click.Command | None = cli
    for word in arguments:
        if not isinstance(command, click.Group):
            break
        if word in command.list_commands(click.Context(command)):
            names.append(word)
            command = command.get_command(click.Context(command), word)
    return " ".join(names)


if __name__ == "__main__":
    main()
