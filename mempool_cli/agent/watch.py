"""The process that stays behind when `mempool exec` becomes the program, and works when that has ended."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterable

_STDERR = 2


class Watcher:
    """A process of its own, no child of the program's, in no terminal's way; `start` makes it."""

    def __init__(self, tell: int) -> None:
        self._tell = tell

    @staticmethod
    def start(at_end: Callable[[], None], *, keeps: Iterable[int] = ()) -> Watcher:
        """Forks it. `at_end` is called there when this process, whatever it becomes, has ended.

        It keeps standard error, and the descriptors of `keeps`. OSError when there can be no more process.
        """
        program = os.pidfd_open(os.getpid())
        heard, tell = os.pipe()
        middle = os.fork()
        if middle == 0:
            try:
                os.setsid()
                if os.fork() == 0:
                    _close_others({_STDERR, program, heard, *keeps})
                    _watch(program, heard, at_end)
            finally:
                os._exit(0)
        os.waitpid(middle, 0)
        os.close(heard)
        os.close(program)
        return Watcher(tell)

    def dismiss(self) -> None:
        """It ends at once, and does nothing."""
        os.write(self._tell, b"\0")
        os.close(self._tell)


def _watch(program: int, heard: int, at_end: Callable[[], None]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.read(heard, 1):
        return  # dismissed; else this process became the program, by which the other end was closed
    poll = select.poll()
    poll.register(program, select.POLLIN)
    poll.poll()
    at_end()


def _close_others(kept: set[int]) -> None:
    """What the program has open besides, a reader may wait to see closed."""
    limit = os.sysconf("SC_OPEN_MAX")
    low = 0
    for fd in sorted(kept):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, limit)
