"""Bytes from nowhere: whatever a client, a host or a file says, the answer is one of our errors or a right one."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli.conftest import Mempool
from cli.documents import document
from cli.machines import process, runner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from session.hosts import served

from mempool_cli import __version__
from mempool_cli.check.policy import Policy, read_policy
from mempool_cli.driver import driver_source
from mempool_cli.driver.sim.profile import FAULTS
from mempool_cli.errors import MempoolError
from mempool_cli.exit_status import EXIT_STATUS
from mempool_cli.requests import AnyRequest
from mempool_cli.session import farewell, journal, protocol
from mempool_cli.session.directory import Place
from mempool_cli.session.protocol import HostState

from .test_session_soak import Wire

HELLO = b'{"type":"hello"}\n'

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


# --- what a host is sent ---

words = (
    st.sampled_from(["0", "1", "7", "a", "b", "all", "peers", "host", "numa:0", "numa:9", "current:0", ""]) | st.text()
)
numbers = st.integers() | st.sampled_from([-1, 0, 1, 2**62, 2**63, 2**64, 10**30])
field = {
    "pool": words,
    "pools": st.lists(words, max_size=3),
    "to": st.lists(words, max_size=3),
    "devices": st.lists(words, max_size=3),
    "location": words,
    "name": st.none() | words,
    "max_size": numbers,
    "release_threshold": numbers,
    "only": st.booleans(),
    "force": st.booleans(),
    "dry_run": st.booleans(),
    "cleanup": st.booleans(),
}


def request_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """A request with every field as its type has it, and now and then one that is not."""
    right = {name: field[name] for name in kind.__struct_fields__}
    wrong = st.dictionaries(st.sampled_from(list(field)) | st.text(max_size=5), json_values, max_size=1)
    return st.builds(
        lambda fields, other: {"type": kind.__name__, **fields, **other},
        st.fixed_dictionaries(right),
        st.just({}) | st.just({}) | wrong,
    )


def run_line(request: object) -> bytes:
    asked = {"type": "run", "version": __version__, "messages": protocol.messages_digest(), "request": request}
    return json.dumps(asked).encode() + b"\n"


requests = st.one_of([request_of(kind) for kind in AnyRequest.__args__]).map(run_line)
lines = st.one_of(
    requests,
    requests,
    json_values.map(run_line),
    json_values.map(lambda value: json.dumps(value).encode() + b"\n"),
    st.binary(max_size=60).map(lambda data: data + b"\n"),
    st.builds(
        lambda line, at, byte: line[:at] + bytes([byte]) + line[at + 1 :],
        requests,
        st.integers(0, 200),
        st.integers(0, 255),
    ),
)


def test_a_host_answers_whatever_comes(place: Place, much: int) -> None:
    asked = runner(process("4"))

    @given(lines)
    @settings(max_examples=200 * much)
    def answers(line: bytes) -> None:
        with closing(Wire(place.socket)) as wire:
            wire.send(line)
            wire.socket.shutdown(socket.SHUT_WR)
            replies = [json.loads(reply) for reply in wire.rest().splitlines()]
        for reply in replies:
            failure = reply["problem"] if reply["type"] == "error" else reply.get("answer", {}).get("failure")
            assert failure is None or EXIT_STATUS[failure["code"]] != EXIT_STATUS["internal"], failure
        with closing(Wire(place.socket)) as wire:
            assert wire.ask(HELLO)["type"] == "state"

    with served(place.socket, asked):
        answers()


# --- what a client is sent ---

state = {
    "type": "state",
    "kind": "session",
    "name": "default",
    "pid": 1,
    "version": __version__,
    "messages": protocol.messages_digest(),
    "driver": driver_source("4").digest,
    "sim": "4",
    "started": "2026-12-01T04:20:59Z",
    "expires": None,
    "idle_timeout": 1,
    "pools": [],
}
near_states = st.builds(lambda key, value: {**state, key: value}, st.sampled_from(list(state)), json_values)
replies = st.lists(
    st.one_of(
        st.just(state),
        near_states,
        st.sampled_from(["stopped", "error", "event", "answer", "dance"]).flatmap(
            lambda kind: st.fixed_dictionaries(
                {"type": st.just(kind)},
                optional={"state": near_states, "problem": json_values, "event": json_values, "answer": json_values},
            )
        ),
        json_values,
    ).map(lambda value: json.dumps(value).encode() + b"\n")
    | st.binary(max_size=60),
    max_size=3,
).map(b"".join)
COMMANDS = [["probe"], ["session", "status"], ["session", "list"], ["session", "stop"]]


@contextmanager
def liar(place: Place, says: bytes) -> Iterator[None]:
    """A host that says this, whatever it is asked."""
    place.socket.unlink(missing_ok=True)
    place.write(place.journal, json.dumps(state).encode())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(place.socket))
        listener.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(says)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(1 << 16):
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_bears_whatever_a_host_says(mempool: Mempool, place: Place, much: int, command: list[str]) -> None:
    @given(replies)
    @settings(max_examples=20 * much)
    @example(json.dumps({"type": "error", "problem": {"code": "usage", "message": "no"}}).encode() + b"\n")
    @example(json.dumps({"type": "stopped", "state": state}).encode() + b"\n")
    @example(2 * (json.dumps(state).encode() + b"\n"))
    @example(b"[" * 100_000 + b"\n")
    def bears(said: bytes) -> None:
        with liar(place, said):
            found = document(mempool("--sim", "4", "--timeout", "0.2", "--format", "json", *command))
        assert found["exit"] != EXIT_STATUS["internal"], found["error"]

    bears()


# --- the files of a host ---


def test_files_of_a_host(place: Place, much: int) -> None:
    @given(
        st.binary(max_size=80)
        | json_values.map(lambda value: json.dumps(value).encode())
        | near_states.map(lambda value: json.dumps(value).encode())
    )
    @settings(max_examples=100 * much)
    @example(b'{"when":' + b"[" * 100_000)
    @example(b'{"x":' + b"[" * 100_000)
    def bears(data: bytes) -> None:
        place.write(place.journal, data)
        assert isinstance(journal.read(place.journal), HostState | None)
        death = journal.death(place)
        assert death is None or death.problem.code == "session-died"
        place.write(place.ended, data)
        farewell.take(place)
        assert not place.ended.exists()

    bears()


# --- files of users ---

KEYS = [
    *("description", "driver_version", "numa_nodes", "device", "p2p", "failure", "driver", "checks", "limits"),
    *("name", "count", "memory", "compute_capability", "pools", "host_pools", "host_numa_id", "compute_mode", "uuid"),
    *("pci_bus_id", "all", "groups", "pairs", "not_pairs", "others", "call", "code", "after", "times", "cuda"),
    *("version", "select", "skip", "data", "seconds"),
]
toml_keys = st.sampled_from(KEYS) | st.text(max_size=5)
toml_values = st.recursive(
    st.booleans()
    | st.integers(-2, 5)
    | st.sampled_from([13000, 2**31, 2**63, 2**70, -(2**70)])
    | st.floats()
    | st.sampled_from(["cuInit", "cuMemPoolSetAccess", "CUDA_ERROR_UNKNOWN", "must-not", "may", "default", "13.0", "*"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(toml_keys, inner, max_size=3),
    max_leaves=6,
)
device = st.dictionaries(
    st.sampled_from(["name", "count", "memory", "pools", "uuid", "pci_bus_id", "compute_capability", "host_numa_id"]),
    toml_values,
    max_size=2,
)
numbers_of_devices = st.integers(-1, 3)
p2p = st.fixed_dictionaries(
    {},
    optional={
        "all": st.booleans(),
        "groups": st.lists(st.lists(numbers_of_devices, max_size=3), max_size=2),
        "pairs": st.lists(st.tuples(numbers_of_devices, numbers_of_devices).map(list), max_size=2),
    },
)
failures = st.lists(
    st.fixed_dictionaries(
        {
            "call": st.sampled_from(["cuInit", "cuMemPoolGetAccess"]),
            "code": st.integers() | st.sampled_from(["CUDA_ERROR_UNKNOWN", "x"]),
        },
        optional={"after": st.integers(-1, 2**70), "times": st.integers(0, 2**70), "device": st.integers()},
    ),
    max_size=2,
)
tables = st.one_of(
    st.dictionaries(toml_keys, toml_values, max_size=4),
    st.fixed_dictionaries({"device": st.lists(device, max_size=2)}, optional={"p2p": p2p, "failure": failures}),
    st.fixed_dictionaries(
        {"device": st.lists(device, max_size=2)},
        optional={"p2p": p2p, "driver": st.dictionaries(st.sampled_from(["cuda", "version"]), toml_values)},
    ),
)


def toml(value: object) -> str:
    """The value as TOML has it inline."""
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case str():
            return (
                json.dumps(value, ensure_ascii=True).replace("\\u007f", "\\\\u007f")
                if value.isascii()
                else json.dumps(value.encode("ascii", "replace").decode())
            )
        case float():
            return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(str(value), repr(value))
        case bool():
            return str(value).lower()
    return str(value)


def toml_file(table: dict[str, object]) -> str:
    return "\n".join(f"{json.dumps(key)} = {toml(value)}" for key, value in table.items())


texts = tables.map(toml_file) | st.text(max_size=60) | st.text("[]{}=.,'\"\\#\n \t-+_:01x", max_size=40)
MANY_DIGITS = "x = " + "1" * 5000
NESTED = "x = " + "[" * 5000


def test_machine_files(mempool: Mempool, tmp_path: Path, much: int) -> None:
    """One that is a machine can be asked, whatever is in it."""
    file = tmp_path / "machine.toml"

    @given(texts, st.sampled_from(["", "", ",fault=leak:0-1", ",fault=", *(f",fault={name}" for name in FAULTS)]))
    @settings(max_examples=80 * much)
    @example(MANY_DIGITS, "")
    @example(NESTED, "")
    def bears(text: str, fault: str) -> None:
        file.write_text(text, errors="surrogatepass")
        for command in ("devices", "probe"):
            found = document(mempool("--sim", f"{file}{fault}", "--no-session", "--format", "json", command))
            assert found["exit"] in (0, 2, 3, 4), found["error"]

    bears()


def test_policies(tmp_path: Path, much: int) -> None:
    file = tmp_path / "policy.toml"

    @given(texts)
    @settings(max_examples=150 * much)
    @example(MANY_DIGITS)
    @example(NESTED)
    def bears(text: str) -> None:
        file.write_text(text, errors="surrogatepass")
        with suppress(MempoolError):
            assert isinstance(read_policy(str(file)), Policy)

    bears()
