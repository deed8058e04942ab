"""Results as text or JSON: `emit` and its kin write, everything else in this package only returns text.

Importing this package, and writing JSON, loads no rich.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, NamedTuple, TextIO

from mempool_cli.errors import Problem
from mempool_cli.model import Answer, Event
from mempool_cli.render.document import document
from mempool_cli.render.stream import terminal_width, wants_colour, write_note, write_result
from mempool_cli.render.words import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

Color = Literal["auto", "always", "never"]


class Output(NamedTuple):
    """How the user wants to see a result. `matrix` matters to a probe, `quiet` to a new pool, `verbose` to verify."""

    format: Literal["table", "json"] = "table"
    color: Color = "auto"
    matrix: bool = False
    quiet: bool = False
    verbose: bool = False


def emit(command: str, answer: Answer, *, output: Output) -> int:
    """Writes the result to stdout, warnings and the failure to stderr, and returns the exit status.

    With JSON all of it goes to stdout as one document. stdout is flushed: a failure shows here and not at
    exit, as BrokenPipeError when the reader went away, else as MempoolError `output`.
    """
    hint = "the change itself was made: look with `mempool list`" if answer.changed else None
    if output.format == "json":
        write_result(sys.stdout, document(command, answer), hint=hint)
        return answer.exit

    from mempool_cli.render.text import note_lines, result_lines

    width = terminal_width(sys.stdout)
    lines = result_lines(answer, as_matrix=output.matrix, quiet=output.quiet, verbose=output.verbose, width=width)
    notes = note_lines(answer, quiet=output.quiet, width=terminal_width(sys.stderr))
    try:
        if lines:
            write_result(sys.stdout, painted(lines, sys.stdout, output.color), hint=hint)
    finally:
        if notes:
            write_note(sys.stderr, painted(notes, sys.stderr, output.color))
    return answer.exit


def plain_text(answer: Answer, *, matrix: bool = False) -> str:
    """What stdout would get as a table, in natural width and without colour. Writes nothing."""
    from mempool_cli.render.layout import plain
    from mempool_cli.render.text import result_lines

    return plain(result_lines(answer, as_matrix=matrix, quiet=False, verbose=False, width=None))


def print_document(text: str) -> None:
    """Writes a document that is a result by itself to stdout, flushed. Raises as `emit`."""
    write_result(sys.stdout, text)


def print_problem(problem: Problem, *, color: Color = "auto") -> None:
    """Writes a failure to stderr as text, whatever the format: for one that stdout cannot carry. Never raises."""
    from mempool_cli.render.text import problem_lines

    write_note(sys.stderr, painted(problem_lines(problem, terminal_width(sys.stderr)), sys.stderr, color))


def print_event(event: Event) -> None:
    """Writes an event to stderr as it happens. Never raises."""
    write_note(sys.stderr, event_line(event) + "\n")


def event_line(event: Event) -> str:
    """The event as one line of text, safe for a terminal."""
    return visible(event.text)


def painted(lines: Sequence[Text], stream: TextIO | None, color: Color) -> str:
    """The lines as the stream should get them."""
    from mempool_cli.render.layout import coloured, plain

    return coloured(lines) if wants_colour(stream, color) else plain(lines)
