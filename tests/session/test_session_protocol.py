"""The messages: what is frozen, what is strict, what is refused."""

from __future__ import annotations

import types

import msgspec
import pytest

from mempool_cli.model import Notice
from mempool_cli.requests import Grant
from mempool_cli.session import protocol
from mempool_cli.session.protocol import BadMessageError, HostState, Run, Stopped

STATE = HostState(
    kind="session",
    name="default",
    pid=4242,
    version="0.1.0",
    messages="abc",
    driver="cuda",
    sim=None,
    started="2026-12-01T00:00:00Z",
    expires=None,
    idle_timeout=0,
    pools=("pool-1",),
)
STATE_LINE = (
    b'{"type":"state","kind":"session","name":"default","pid":4242,"version":"0.1.0","messages":"abc",'
    b'"driver":"cuda","sim":null,"started":"2026-12-01T00:00:00Z","expires":null,"idle_timeout":0,"pools":["pool-1"]}'
)


def test_frozen_messages_never_change() -> None:
    assert protocol.encode(protocol.Hello()) == b'{"type":"hello"}\n'
    assert protocol.encode(protocol.Status()) == b'{"type":"status"}\n'
    assert protocol.encode(protocol.Stop()) == b'{"type":"stop"}\n'
    assert protocol.encode(STATE) == STATE_LINE + b"\n"
    stopped = Stopped(state=STATE, notices=(Notice("not-cleared", "device 1"),), not_destroyed=("pool-1",))
    assert protocol.encode(stopped) == (
        b'{"type":"stopped","state":' + STATE_LINE + b',"notices":[{"code":"not-cleared","message":"device 1"}],'
        b'"not_destroyed":["pool-1"]}\n'
    )


def test_frozen_messages_of_earlier_versions_are_read() -> None:
    assert protocol.decode_reply(b'{"type":"stopped","state":' + STATE_LINE + b"}") == Stopped(state=STATE)


def test_frozen_messages_of_later_versions_are_read() -> None:
    assert protocol.decode_head(b'{"type":"stop","politely":[{}]}').type == "stop"
    assert protocol.decode_reply(STATE_LINE[:-1] + b',"mood":"fine"}') == STATE


RUN = Run(version="0.1.0", messages="abc", request=Grant(pool="0", to=("1",)), visible="0", order=None)


def test_a_run_comes_back() -> None:
    assert protocol.decode_run(protocol.encode(RUN)) == RUN


@pytest.mark.parametrize("inner", ['"pool"', '"version"'])
def test_unknown_fields_of_a_run_are_refused(inner: str) -> None:
    line = protocol.encode(RUN).decode().replace(inner, f'"surprise":1,{inner}').encode()
    with pytest.raises(BadMessageError, match="surprise"):
        protocol.decode_run(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET / HTTP/1.1\r",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"type":1}',
        b'{"type":"a","version":null}',
        b'{"type":"\xff"}',
        b'{"type":"\\ud800"}',
        b"[" * 100_000,
        b'{"type":' * 100_000,
        b'{"type":"run","x":' + b"[" * 100_000,
    ],
    ids=str,
)
def test_junk(line: bytes) -> None:
    with pytest.raises(BadMessageError):
        protocol.decode_head(line)


def module(definition: type[msgspec.Struct]) -> types.ModuleType:
    made = types.ModuleType("messages")
    made.__dict__["Message"] = definition
    return made


def test_the_digest_tells_definitions_apart() -> None:
    fields: list[list[tuple[str, type, object]]] = [
        [("a", int, 0)],
        [("b", int, 0)],
        [("a", str, 0)],
        [("a", int, 1)],
        [("a", int, 0), ("b", int, 0)],
    ]
    digests = {protocol.digest_of((module(msgspec.defstruct("Message", each)),)) for each in fields}
    digests.add(protocol.digest_of((module(msgspec.defstruct("Message", fields[0], tag="other")),)))
    assert len(digests) == 6


def test_the_digest_is_the_same_in_every_process() -> None:
    from .hosts import python

    done = python("from mempool_cli.session import protocol; print(protocol.messages_digest())")
    assert done.stdout.strip() == protocol.messages_digest()
