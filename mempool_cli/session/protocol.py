"""The messages between a client and a host: one JSON object a line, each way.

`hello`, `status` and `stop` and their replies are frozen: fields may be added with a default, none may change
or go, and both sides ignore what they do not know. So a host of any version can be asked what it is, and ended.
`run` and its replies hold only between equals: the same version, and the same `messages_digest`.
"""

from __future__ import annotations

import functools
import hashlib
import typing
from types import ModuleType
from typing import Literal

import msgspec

from mempool_cli import errors, model, requests
from mempool_cli.errors import Problem
from mempool_cli.model import Answer, Event, Notice, Session
from mempool_cli.requests import AnyRequest

MAX_REQUEST_BYTES = 1 << 20


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """-> HostState: who is there? Frozen."""


class Status(msgspec.Struct, frozen=True, tag="status"):
    """-> HostState. Frozen."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """-> Stopped, once the pools are destroyed and the socket is gone. Frozen."""


class Run(msgspec.Struct, frozen=True, kw_only=True, tag="run", forbid_unknown_fields=True):
    """-> Happened any number of times, then Answered. `visible`, `order`: the client's CUDA_... variables."""

    version: str
    messages: str
    request: AnyRequest
    trace: bool = False
    visible: str | None = None
    order: str | None = None


class HostState(msgspec.Struct, frozen=True, kw_only=True, tag="state"):
    """A host: a reply, and the journal on disk. Frozen.

    `messages`: its `messages_digest`. `driver`: the digest of its driver's source. `sim`: its SPEC, None on
    hardware. Times are ISO 8601 in UTC; `expires` is None and `idle_timeout` (seconds) 0 when it never ends by
    itself. `pools`: the names that it created.
    """

    kind: Literal["session", "program"]
    name: str
    pid: int
    version: str
    messages: str
    driver: str
    sim: str | None
    started: str
    expires: str | None
    idle_timeout: int
    pools: tuple[str, ...]

    @property
    def who(self) -> str:
        """`simulated session default`."""
        return f"{'' if self.sim is None else 'simulated '}{self.kind} {self.name}"

    def session(self, *, answering: bool = True) -> Session:
        """The same, as users are told. Not `answering`: as it wrote last, when it was to end later or sooner."""
        return Session(
            kind=self.kind,
            name=self.name,
            pid=self.pid,
            version=self.version,
            sim=self.sim,
            started=self.started,
            expires=self.expires if answering else None,
            idle_timeout=self.idle_timeout,
            pools=self.pools,
            answering=answering,
        )


class Stopped(msgspec.Struct, frozen=True, kw_only=True, tag="stopped"):
    """The host as it was, what went wrong at its end, and its pools that were not destroyed. Frozen."""

    state: HostState
    notices: tuple[Notice, ...] = ()
    not_destroyed: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True, tag="error"):
    """Nothing was done; the host closes the connection. Frozen."""

    problem: Problem


class Happened(msgspec.Struct, frozen=True, tag="event"):
    """An event of the request that runs."""

    event: Event


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """The result. `ending`: the host ends now, since the first that it was asked failed. `stays`: it lives on."""

    answer: Answer
    ending: bool = False
    stays: bool = True


Message = Hello | Status | Stop | Run
Reply = HostState | Stopped | Refused | Happened | Answered


class Head(msgspec.Struct, frozen=True):
    """What is read of any message first, of whatever version it is."""

    type: str
    version: str = ""
    messages: str = ""


class BadMessageError(Exception):
    """What came is no message; says why, in the decoder's words."""


@functools.cache
def messages_digest() -> str:
    """A hash of the definitions of all message types.

    Read from the annotations as written: 0.2 ms, where a JSON schema of the same takes 7 ms of every command.
    """
    return digest_of((errors, model, requests), Run, Happened, Answered)


def digest_of(modules: tuple[ModuleType, ...], *more: type[msgspec.Struct]) -> str:
    """A hash of every struct and every alias of types in `modules`, and of the structs in `more`."""
    found = [(name, value) for module in modules for name, value in sorted(vars(module).items())]
    text = "\n".join(_definition(name, value) for name, value in [*found, *((each.__name__, each) for each in more)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _definition(name: str, value: object) -> str:
    if isinstance(value, type) and issubclass(value, msgspec.Struct):
        bases = [base.__name__ for base in value.__bases__]
        return f"{name} {bases} {value.__struct_config__.tag} {value.__annotations__} {value.__struct_defaults__}"
    return f"{name} {value}" if typing.get_args(value) else ""


def encode(message: Message | Reply) -> bytes:
    """One line. UnicodeEncodeError when a string in it is no text."""
    return msgspec.json.encode(message) + b"\n"


def decode_head(line: bytes) -> Head:
    """Of which type and version a message is; BadMessageError."""
    return _decode(_decoder("head"), line, Head)


def decode_run(line: bytes) -> Run:
    """A `run` of our own version, unknown fields forbidden; BadMessageError."""
    return _decode(_decoder("run"), line, Run)


def decode_state(line: bytes) -> HostState:
    """A journal; BadMessageError."""
    return _decode(_decoder("state"), line, HostState)


def decode_reply(line: bytes) -> Reply:
    """Any reply; BadMessageError."""
    return typing.cast(Reply, _decode(_decoder("reply"), line, object))


T = typing.TypeVar("T")


def _decode(decoder: msgspec.json.Decoder[typing.Any], line: bytes, kind: type[T]) -> T:
    try:
        return typing.cast(T, decoder.decode(line))
    except RecursionError:
        raise BadMessageError("nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadMessageError(str(error)) from None


@functools.cache
def _decoder(kind: Literal["head", "run", "state", "reply"]) -> msgspec.json.Decoder[typing.Any]:
    # Made when first used: a decoder resolves its types, and most commands need one of these or none.
    types = {"head": Head, "run": Run, "state": HostState, "reply": Reply}
    return msgspec.json.Decoder(types[kind])
