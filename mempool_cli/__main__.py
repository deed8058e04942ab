"""The program: runs the command line; the one place where an exception becomes an exit status."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from mempool_cli.exit_status import INTERRUPTED, READER_GONE, TERMINATED, Terminated

# The rest, click too, is imported by `main` or later: an interrupt while it loads ends the program as any other does.
if TYPE_CHECKING:
    import click

    from mempool_cli.commands.arguments import Asked
    from mempool_cli.errors import Problem

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def main() -> None:
    """Runs sys.argv and ends the process with its status."""
    try:
        signal.signal(signal.SIGTERM, _terminate)
        _open_standard_streams()
        import mempool_cli.commands  # noqa: F401  what is interrupted as it loads does not load again: nothing tells it

        status = run(sys.argv[1:])
        # It is done and told: a signal now has no more to say than that the process ends.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            sys.stderr.flush()
    except (KeyboardInterrupt, Terminated) as error:  # while it told how it ended
        status = _status_of(error)
    # All is written. To take the interpreter apart would take a fifth of the time of a short command, and flush stdout
    # again when its reader is gone.
    os._exit(status)


def run(arguments: Sequence[str]) -> int:
    """Runs the command line and returns its exit status; no traceback is printed.

    Raises KeyboardInterrupt and Terminated alone, when they come while it tells how the command ended.
    """
    try:
        status = _invoke(arguments)
        sys.stdout.flush()
        return status
    except BaseException as error:
        return _status(arguments, error)


def _status(arguments: Sequence[str], error: BaseException) -> int:
    """The exit status of what was raised, after telling it."""
    import click

    match error:
        case click.exceptions.NoArgsIsHelpError() if _asked(arguments).format == "table":
            return _no_arguments(error)
        case BrokenPipeError():
            return READER_GONE
        case KeyboardInterrupt() | Terminated():
            return _ended(arguments, error)
        case Exception():
            return _fail(arguments, _problem(error))
        case _:
            raise error


def _invoke(arguments: Sequence[str]) -> int:
    """As `cli.main`, which would exit with status 1 when the reader of stdout went away."""
    import click

    from mempool_cli.commands import cli

    wanted = os.environ.get("_MEMPOOL_COMPLETE")
    if wanted:
        from mempool_cli.commands.completion import answer

        return answer(cli, wanted)
    try:
        with cli.make_context("mempool", list(arguments), obj=partial(_asked, arguments)) as ctx:
            return cli.invoke(ctx) or 0
    except click.exceptions.Exit as end:
        return end.exit_code


def _open_standard_streams() -> None:
    """A closed descriptor gets /dev/null, for reading: no file or socket lands there, and writing still fails."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDONLY)  # takes the lowest free descriptor: this one
            setattr(sys, name, os.fdopen(fd, mode))


def _no_arguments(error: click.exceptions.NoArgsIsHelpError) -> int:
    from mempool_cli.render.stream import write_note

    write_note(sys.stderr, error.format_message() + "\n")
    return error.exit_code


def _ended(arguments: Sequence[str], error: BaseException) -> int:
    """A signal ended it: silently, but for a reader of JSON, who must find a document."""
    interrupted = isinstance(error, KeyboardInterrupt)
    if _asked(arguments).format == "json":
        with contextlib.suppress(ImportError, AttributeError):  # of a module that was interrupted as it loaded
            from mempool_cli.errors import ended_by

            return _fail(arguments, ended_by(error))
    if interrupted and sys.stderr.isatty():
        sys.stderr.write("\n")  # ends the line on which the terminal shows ^C
    return _status_of(error)


def _status_of(error: BaseException) -> int:
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else TERMINATED


def _asked(arguments: Sequence[str]) -> Asked:
    from mempool_cli.commands import cli
    from mempool_cli.commands.arguments import asked

    return asked(cli, arguments)


def _output_failed(problem: Problem) -> int:
    """stdout cannot carry the failure, in whatever format: stderr gets it as text."""
    from mempool_cli.render import print_problem

    print_problem(problem)
    return problem.exit


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise Terminated


def _problem(error: Exception) -> Problem:
    import click

    from mempool_cli.errors import MempoolError, Problem

    if isinstance(error, MempoolError):
        return error.problem
    if isinstance(error, click.ClickException):
        ctx = error.ctx if isinstance(error, click.UsageError) else None
        bare = isinstance(error, click.exceptions.NoArgsIsHelpError)
        message = "Missing command." if bare else error.format_message().strip()
        return Problem(code="usage", message=message, hint=f"see `{ctx.command_path if ctx else 'mempool'} --help`")
    if isinstance(error, OSError) and error.errno in _UNWRITABLE:
        return Problem(code="output", message=f"could not write: {error.strerror}")
    return _internal(error)


def _internal(error: Exception) -> Problem:
    from mempool_cli.errors import Problem

    if os.environ.get("MEMPOOL_DEBUG", "") not in ("", "0"):
        import traceback

        traceback.print_exc()
    return Problem(
        code="internal",
        message=f"internal error: {type(error).__name__}: {error}",
        hint="this is a fault of mempool: please report it with the command and the output of MEMPOOL_DEBUG=1",
    )


def _fail(arguments: Sequence[str], problem: Problem) -> int:
    """Emits a failure that no runner answered for, in the format that the arguments asked for."""
    from mempool_cli.errors import MempoolError
    from mempool_cli.model import Answer
    from mempool_cli.render import Output, emit

    if problem.code == "output":
        return _output_failed(problem)
    wanted = _asked(arguments)
    output = Output(format=wanted.format, color=wanted.color)
    try:
        return emit(wanted.command, Answer(failure=wanted.with_options(problem)), output=output)
    except BrokenPipeError:
        return READER_GONE
    except MempoolError as error:
        return _output_failed(error.problem)


if __name__ == "__main__":
    main()
