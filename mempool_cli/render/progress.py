"""How far a long run is: a bar on a terminal, a line for each step anywhere else. On stderr."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from mempool_cli.model import Event
from mempool_cli.render import event_line, print_event
from mempool_cli.render.stream import is_terminal, wants_colour

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Progress:
    """Counts up to `total`; the bar goes when it is left, however that is."""

    def __init__(self, total: int, *, color: Literal["auto", "always", "never"]) -> None:
        self._total = total
        self._count = 0
        self._bar = _bar(total, color=color) if is_terminal(sys.stderr) and total else None

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def done(self, text: str) -> None:
        """One more."""
        self._count += 1
        if self._bar:
            description = event_line(Event("status", text))
            self._bar.update(self._bar.task_ids[0], completed=self._count, description=description, refresh=True)
        else:
            print_event(Event("status", f"{self._count} of {self._total}: {text}"))


def _bar(total: int, *, color: Literal["auto", "always", "never"]) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, no_color=not wants_colour(sys.stderr, color), highlight=False)
    columns = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    # Without its thread: that would take the signals which are blocked here while a child is started.
    bar = Bar(
        *columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )
    bar.add_task("", total=total)
    return bar
