"""The access of pools while it changes: redrawn on a terminal, a line a change anywhere else, or a document."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from mempool_cli.model import AccessMatrix, Answer, Row
from mempool_cli.render import Output, emit, painted
from mempool_cli.render.cells import phrase, sentence
from mempool_cli.render.document import document
from mempool_cli.render.stream import is_terminal, pause, write_result
from mempool_cli.render.words import roles, visible
from mempool_cli.wording import place_name

if TYPE_CHECKING:
    from rich.text import Text

_LAST_CHANGES = 8
_KEPT_CHANGES = 1000


class Watching:
    """Shows an answer, and of each later one what is new. `in_place`: a terminal is redrawn, if it can be."""

    def __init__(self, command: str, output: Output, *, in_place: bool) -> None:
        self._command = command
        self._output = output
        self._last: Answer | None = None
        able = is_terminal(sys.stdout) and os.environ.get("TERM") != "dumb" and output.format == "table"
        self._screen = _Screen(output) if in_place and able else None

    def __enter__(self) -> Watching:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._screen:
            self._screen.close()

    def show(self, answer: Answer) -> None:
        """The next answer, one with a matrix."""
        before, self._last = self._last, answer
        if self._screen:
            self._screen.show(answer, _between(before, answer))
        elif self._output.format == "json":
            if before is None or (before.result, before.problem) != (answer.result, answer.problem):
                write_result(sys.stdout, document(self._command, answer))
        elif before is None:
            emit(self._command, answer, output=self._output)
        elif new := _between(before, answer):
            write_result(sys.stdout, "".join(f"{visible(text)}\n" for text in new))

    def pause(self, seconds: float) -> None:
        """Waits. Raises BrokenPipeError when the reader goes away meanwhile."""
        pause(sys.stdout, seconds)


def changes(before: AccessMatrix, now: AccessMatrix) -> Iterator[str]:
    """What is other than before: `default:0: device 2 none -> RW`."""
    old = {row.pool.name: row for row in before.rows}
    new = {row.pool.name: row for row in now.rows}
    for name in old:
        if name not in new:
            yield f"{name}: gone"
    for name, row in new.items():
        if name not in old:
            place = place_name(row.pool.owner, row.pool.location)
            yield f"{name}: new on {place}: {sentence(row.cells, row.host)}"
        else:
            yield from _row_changes(old[name], row)


def _row_changes(before: Row, now: Row) -> Iterator[str]:
    name = now.pool.name
    if roles(before.pool) != roles(now.pool):
        yield f"{name}: {roles(before.pool)} -> {roles(now.pool)}"
    for was, cell in zip((*before.cells, before.host), (*now.cells, now.host), strict=False):
        if phrase(was) != phrase(cell):
            who = "host" if cell.device is None else f"device {cell.device}"
            yield f"{name}: {who} {phrase(was)} -> {phrase(cell)}"


def _between(before: Answer | None, now: Answer) -> list[str]:
    assert isinstance(now.result, AccessMatrix)
    if before is None:
        return []
    assert isinstance(before.result, AccessMatrix)
    return list(changes(before.result, now.result))


class _Screen:
    """A terminal's alternate screen: what was on the terminal comes back, and below it the last state is left.

    Ctrl-Z gives the terminal back too, until the watch goes on.
    """

    def __init__(self, output: Output) -> None:
        from rich.control import Control

        self._output = output
        self._answer: Answer | None = None
        self._changes: list[Text] = []
        self._drawn: tuple[os.terminal_size, str] | None = None
        self._frame = ""
        self._open = self._stops = False
        self._enter = f"{Control.alt_screen(True)}{Control.show_cursor(False)}"
        self._leave = f"{Control.alt_screen(False)}{Control.show_cursor(True)}"

    def _enter_once(self) -> None:
        if self._open:
            return
        self._open = True  # first: whatever comes now, it is left again
        write_result(sys.stdout, self._enter)
        self._stops = signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        if self._stops:
            signal.signal(signal.SIGTSTP, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        # not through the stream: it may be writing at this moment
        stdout = sys.stdout.fileno()
        os.write(stdout, self._leave.encode())
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stop)
        os.write(stdout, (self._enter + self._frame).encode(sys.stdout.encoding, "backslashreplace"))

    def close(self) -> None:
        if not self._open:
            return
        if self._stops:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        last = ""
        if self._answer:
            last = painted(self._lines(self._answer, _size().columns), sys.stdout, self._output.color)
        with contextlib.suppress(Exception):  # what ended the watch is what counts
            write_result(sys.stdout, f"{self._leave}{last}")

    def show(self, answer: Answer, new: list[str]) -> None:
        from rich.control import Control

        from mempool_cli.render.layout import line

        self._enter_once()
        self._answer = answer
        self._changes += [line(f"{time.strftime('%H:%M:%S')}  {text}") for text in new]
        del self._changes[:-_KEPT_CHANGES]
        size = _size()
        text = painted(self._fitting(answer, size), sys.stdout, self._output.color).removesuffix("\n")
        if (size, text) != self._drawn:
            self._drawn = size, text
            self._frame = f"{Control.home()}{Control.clear()}{text}"
            write_result(sys.stdout, self._frame)

    def _lines(self, answer: Answer, columns: int, most: int | None = None) -> list[Text]:
        from mempool_cli.render.layout import folded, line
        from mempool_cli.render.text import note_lines, result_lines

        lines = result_lines(answer, as_matrix=self._output.matrix, quiet=False, verbose=False, width=columns)
        lines += note_lines(answer, quiet=False, width=columns)
        last = folded(self._changes[-_LAST_CHANGES:] if most else self._changes, columns)
        room = len(lines) if most is None else most - len(last) - bool(last)
        if len(lines) > room:
            shown = max(room - 1, 0)
            lines = [*lines[:shown], line(f"... {len(lines) - shown} more lines: the terminal is too low")]
        return [*lines, line(), *last] if last else lines

    def _fitting(self, answer: Answer, size: os.terminal_size) -> list[Text]:
        return self._lines(answer, size.columns, size.lines)[: size.lines]


def _size() -> os.terminal_size:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        size = os.terminal_size((0, 0))
    return os.terminal_size((size.columns or 80, size.lines or 24))
