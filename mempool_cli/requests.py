"""What a runner can be asked: one frozen value an operation, and the runner's one method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from mempool_cli.model import Answer, Event


class Request(msgspec.Struct, frozen=True, kw_only=True, tag=True, forbid_unknown_fields=True):
    """Base of all requests. Pools and devices are named as on the command line: the runner's driver resolves them."""


class Devices(Request, frozen=True, kw_only=True):
    """-> DeviceList."""


class List(Request, frozen=True, kw_only=True):
    """-> PoolList."""


class Show(Request, frozen=True, kw_only=True):
    """-> PoolDetail."""

    pool: str


class Probe(Request, frozen=True, kw_only=True):
    """-> AccessMatrix of these pools; of every nameable pool when empty."""

    pools: tuple[str, ...] = ()


class Create(Request, frozen=True, kw_only=True):
    """-> PoolCreated. Sizes in bytes; `max_size` 0 is the driver's default; `name` None is automatic."""

    location: str
    name: str | None = None
    max_size: int = 0
    release_threshold: int = 0
    to: tuple[str, ...] = ()


class Grant(Request, frozen=True, kw_only=True):
    """-> AccessChange. `only`: exactly these devices, others lose access."""

    pool: str
    to: tuple[str, ...]
    only: bool = False
    force: bool = False
    dry_run: bool = False


class Revoke(Request, frozen=True, kw_only=True):
    """-> AccessChange."""

    pool: str
    devices: tuple[str, ...]
    dry_run: bool = False


class SetCurrent(Request, frozen=True, kw_only=True):
    """-> CurrentPool."""

    pool: str


class Destroy(Request, frozen=True, kw_only=True):
    """-> PoolsDestroyed. `cleanup`: clear peer access first."""

    pools: tuple[str, ...]
    cleanup: bool = True


AnyRequest = Devices | List | Show | Probe | Create | Grant | Revoke | SetCurrent | Destroy

OnEvent = Callable[[Event], None]


class Runner(Protocol):
    """Who can answer requests: this process, a session, a program."""

    def run(self, request: AnyRequest, on_event: OnEvent, *, trace: bool = False) -> Answer:
        """Runs one request. With `trace` every driver call becomes an event as it returns.

        Failures of the operation come back in the answer; MempoolError is raised only when there is no
        answer at all (the host died, refused to talk, or does not exist).
        """
