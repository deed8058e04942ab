"""What a starter hands to the interpreter that is to become a session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from mempool_cli.driver import DriverSource
from mempool_cli.session import MAX_IDLE_SECONDS
from mempool_cli.session.directory import Place


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`source` is an encoded DriverSource; `idle_timeout` in seconds; the last three are descriptors."""

    directory: str
    name: str
    source: str
    idle_timeout: Annotated[int, msgspec.Meta(ge=0, le=MAX_IDLE_SECONDS)]
    provisional: bool
    lock: int
    ready: int
    lifeline: int | None

    @staticmethod
    def decode(data: bytes) -> Plan:
        """The plan that `encode` made."""
        return msgspec.json.decode(data, type=Plan)

    def encode(self) -> bytes:
        """JSON."""
        return msgspec.json.encode(self)

    def place(self, source: DriverSource) -> Place:
        """Where the session keeps its files."""
        return Place(Path(self.directory), source.sim is not None, self.name)
