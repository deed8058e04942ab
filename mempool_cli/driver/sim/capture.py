"""Stream capture, as far as it forbids pool calls: who captures, in which mode, and what a call does to it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from mempool_cli.driver.port import CaptureMode


@dataclass
class Capture:
    """A stream that is being captured; `thread` began it."""

    thread: int
    mode: int
    invalidated: bool = False


class CaptureState:
    """The captures and thread modes of one process.

    A pool call of a thread in GLOBAL mode is forbidden while this thread captures in global or thread-local
    mode, or any thread captures in global mode; in THREAD_LOCAL mode, while this thread captures so; in
    RELAXED mode, never. A forbidden call invalidates those captures (measured).
    """

    def __init__(self) -> None:
        self.calling_thread: int | None = None
        self._modes: dict[int, int] = {}
        self._captures: dict[int, Capture] = {}

    @property
    def thread(self) -> int:
        return threading.get_ident() if self.calling_thread is None else self.calling_thread

    def exchange_mode(self, mode: int) -> int:
        """Sets the calling thread's mode and returns its previous one."""
        previous = self._modes.get(self.thread, CaptureMode.GLOBAL)
        self._modes[self.thread] = mode
        return previous

    def begin(self, stream: int, mode: int) -> None:
        """The calling thread begins to capture `stream`."""
        self._captures[stream] = Capture(self.thread, mode)

    def end(self, stream: int) -> bool:
        """Ends the capture of `stream` and tells whether it survived. KeyError when there is none."""
        return not self._captures.pop(stream).invalidated

    def status(self, stream: int) -> Capture | None:
        """The capture of `stream`, if there is one."""
        return self._captures.get(stream)

    def forbids(self) -> bool:
        """Whether the calling thread may not make a pool call now; if so, the captures concerned are lost."""
        if not self._captures:
            return False
        hit = [capture for capture in self._captures.values() if self._concerns(capture)]
        for capture in hit:
            capture.invalidated = True
        return bool(hit)

    def _concerns(self, capture: Capture) -> bool:
        mode = self._modes.get(self.thread, CaptureMode.GLOBAL)
        if mode == CaptureMode.RELAXED or capture.mode == CaptureMode.RELAXED:
            return False
        if capture.thread == self.thread:
            return True
        return mode == CaptureMode.GLOBAL and capture.mode == CaptureMode.GLOBAL
