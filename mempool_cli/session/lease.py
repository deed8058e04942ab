"""How long a host lives unused, and the words by which answers name it."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import Literal

from mempool_cli.model import Where


class Lease:
    """The name of this process as a host, and its end. `idle_timeout` in seconds; 0: never ends by itself.

    `first_use`: seconds in which it must be used for the first time. A host that was started for a request whose
    client then goes away would otherwise wait for as long as one that holds something.
    """

    def __init__(
        self, kind: Literal["session", "program"], name: str, idle_timeout: int, *, first_use: float | None = None
    ) -> None:
        self.kind = kind
        self.name = name
        self.pid = os.getpid()
        self.idle_timeout = idle_timeout
        self.started = _utc(0)
        self._limit = idle_timeout if first_use is None else first_use
        self._since = time.monotonic()

    def begin(self) -> None:
        """The host can be used from this moment."""
        self._since = time.monotonic()

    def touch(self) -> None:
        """The host is used at this moment."""
        self._limit = self.idle_timeout
        self._since = time.monotonic()

    def left(self) -> float | None:
        """Seconds until the end, at least 0; None when there is no end."""
        if not self._limit:
            return None
        return max(0.0, self._since + self._limit - time.monotonic())

    def expires(self) -> str | None:
        """When the host ends unless it is used, ISO 8601 in UTC; None when it does not."""
        left = self.left()
        return None if left is None else _utc(left)

    def where(self) -> Where:
        """This host, as an answer names it."""
        return Where(kind=self.kind, name=self.name, pid=self.pid, expires=self.expires())


def _utc(seconds_from_now: float) -> str:
    moment = datetime.now(UTC) + timedelta(seconds=seconds_from_now)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
