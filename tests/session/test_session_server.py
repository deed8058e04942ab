"""The server lives whatever clients send, and does one thing at a time."""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mempool_cli import __version__
from mempool_cli.errors import MempoolError, Problem
from mempool_cli.model import (
    AccessChange,
    Answer,
    AnyResult,
    CurrentPool,
    Event,
    Pool,
    PoolCreated,
    PoolDestroyed,
    PoolList,
    PoolsDestroyed,
)
from mempool_cli.requests import AnyRequest, List, OnEvent, Show
from mempool_cli.session import connection, lifecycle, peer, protocol
from mempool_cli.session.directory import Place
from mempool_cli.session.lock import Lock

from .hosts import SECONDS, SIM, ScriptedRunner, Wire, failure, files, python, python_process, served, start

HELLO = b'{"type":"hello"}\n'
FINE = Answer(result=PoolList(pools=()))
NO = Problem(code="usage", message="no")
FAILED = Answer(failure=NO)
POOL = Pool(name="a", roles=(), location="0", owner=0)
OTHER = Pool(name="default:0", roles=(), location="0", owner=0)


def fine(request: AnyRequest, on_event: OnEvent) -> Answer:
    return FINE


def run_line(asked: AnyRequest = List(), **changes: object) -> bytes:  # noqa: B008
    run = protocol.Run(version=__version__, messages=protocol.messages_digest(), request=asked)
    return json.dumps({**json.loads(protocol.encode(run)), **changes}).encode() + b"\n"


def reply(wire: Wire) -> dict[str, object]:
    decoded: dict[str, object] = json.loads(wire.line())
    return decoded


def error_of(data: bytes) -> Problem:
    decoded = protocol.decode_reply(data)
    assert isinstance(decoded, protocol.Refused)
    return decoded.problem


@pytest.fixture
def host(place: Place) -> Iterator[Path]:
    """The socket of a server that answers after the test as before it."""
    with served(place.socket, ScriptedRunner(fine)):
        yield place.socket
        with Wire(place.socket) as wire:
            wire.send(run_line())
            assert reply(wire)["type"] == "answer"


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r\n",
        b"\xff\n",
        b"\n",
        b"[" * 100_000 + b"\n",
        b'{"type":' * 50_000 + b"\n",
        run_line(request=[[]]),
        run_line(surprise=1),
        run_line(request={"type": "List", "surprise": 1}),
        b'{"type":"dance"}\n',
        b"x" * (2 << 20) + b"\n",
        b"x" * (2 << 20),
    ],
    ids=[
        "http",
        "bytes",
        "empty",
        "nested",
        "nested-objects",
        "request",
        "field",
        "inner-field",
        "type",
        "2MiB",
        "open",
    ],
)
def test_junk_gets_an_error_and_the_server_lives(host: Path, line: bytes) -> None:
    with Wire(host) as wire:
        wire.send(line + HELLO)
        wire.socket.shutdown(socket.SHUT_WR)
        answer = wire.rest()
    problem = error_of(answer)
    assert (problem.code, problem.exit) == ("bad-request", 5)
    assert answer.count(b"\n") == 1


def test_half_a_line_and_silence(host: Path) -> None:
    with Wire(host) as wire:
        wire.send(b'{"type":')
    with Wire(host) as wire:
        wire.send(b'{"type":')
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.rest() == b""
    with Wire(host) as wire:
        wire.send(run_line())
    with Wire(host):
        pass


def test_many_lines_at_once_and_a_half_closed_socket(host: Path) -> None:
    with Wire(host) as wire:
        wire.send(HELLO + run_line() + HELLO[:5])
        wire.send(HELLO[5:] + run_line())
        wire.socket.shutdown(socket.SHUT_WR)
        kinds = [json.loads(line)["type"] for line in wire.rest().splitlines()]
    assert kinds == ["state", "answer", "state", "answer"]


def test_other_versions_may_look_and_stop_but_not_run(place: Place) -> None:
    start()
    with Wire(place.socket) as wire:
        wire.send(b'{"type":"hello","version":"9.9","new":[1]}\n{"type":"status","version":"9.9"}\n')
        greeting = protocol.decode_reply(wire.line())
        assert isinstance(greeting, protocol.HostState)
        assert (greeting.name, greeting.version) == ("default", __version__)
        assert protocol.decode_reply(wire.line()) == greeting
        wire.send(run_line(version="9.9", unheard_of=1))
        problem = error_of(wire.rest())
        assert problem.code == "other-version"
        assert problem.message == f"session default runs mempool {__version__}, this command is mempool 9.9"
        assert problem.hint
        assert "mempool session stop" in problem.hint
    with Wire(place.socket) as wire:
        wire.send(run_line(messages="0"))
        assert "from different source" in error_of(wire.rest()).message
    with Wire(place.socket) as wire:
        wire.send(b'{"type":"stop","version":"9.9","new":1}\n')
        assert reply(wire)["type"] == "stopped"
        assert wire.rest() == b""


def test_one_at_a_time(place: Place) -> None:
    running, go = threading.Event(), threading.Event()
    order: list[str] = []

    def slow(request: AnyRequest, on_event: OnEvent) -> Answer:
        assert isinstance(request, Show)
        order.append(f"begin {request.pool}")
        if request.pool == "a":
            running.set()
            assert go.wait(SECONDS)
        order.append(f"end {request.pool}")
        return FINE

    with served(place.socket, ScriptedRunner(slow)), Wire(place.socket) as one, Wire(place.socket) as two:
        one.send(run_line(Show(pool="a")))
        assert running.wait(SECONDS)
        two.send(run_line(Show(pool="b")))
        go.set()
        assert reply(one)["type"] == reply(two)["type"] == "answer"
    assert order == ["begin a", "end a", "begin b", "end b"]


def test_events_come_while_the_request_runs(place: Place) -> None:
    go = threading.Event()

    def slow(request: AnyRequest, on_event: OnEvent) -> Answer:
        on_event(Event("trace", "cuMemPoolSetAccess"))
        assert go.wait(SECONDS)
        return FINE

    with served(place.socket, ScriptedRunner(slow)), Wire(place.socket) as wire:
        wire.send(run_line())
        assert reply(wire) == {"type": "event", "event": {"kind": "trace", "text": "cuMemPoolSetAccess"}}
        go.set()
        assert reply(wire)["type"] == "answer"


def test_a_reader_that_stalls_is_dropped(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "STALL_SECONDS", 0.1)
    huge = Answer(failure=Problem(code="usage", message="x" * (8 << 20)))
    runner = ScriptedRunner(lambda request, on_event: huge if isinstance(request, Show) else FINE)
    with served(place.socket, runner), Wire(place.socket) as stalled, Wire(place.socket) as other:
        stalled.send(run_line(Show(pool="a")))
        other.send(run_line())
        assert reply(other)["type"] == "answer"
        # The server closes it: then what it had sent is all there is.
        wait_for_hang_up(stalled.socket)
        assert len(stalled.rest()) < 8 << 20


def test_a_reader_that_reads_slowly_gets_everything(place: Place) -> None:
    huge = Answer(failure=Problem(code="usage", message="x" * (8 << 20)))
    with (
        served(place.socket, ScriptedRunner(lambda request, on_event: huge)),
        connection.Connection(place.socket, time.monotonic() + SECONDS) as asked,
    ):
        asked.send(run_line())
        assert asked.receive() == protocol.Answered(answer=huge)


def test_a_reader_that_stalls_on_events_does_not_stop_the_request(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "STALL_SECONDS", 0.1)
    done = threading.Event()

    def chatty(request: AnyRequest, on_event: OnEvent) -> Answer:
        for _ in range(100):
            on_event(Event("trace", "x" * 100_000))
        done.set()
        return FINE

    with served(place.socket, ScriptedRunner(chatty)), Wire(place.socket) as wire:
        wire.send(run_line())
        assert done.wait(SECONDS)


def test_a_client_that_does_not_ask_is_dropped(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "REQUEST_SECONDS", 0.1)
    with served(place.socket, ScriptedRunner(fine)), Wire(place.socket) as wire:
        wire.send(b'{"type":')
        assert wire.rest() == b""


def test_waiting_for_a_busy_server_is_not_held_against_a_client(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "REQUEST_SECONDS", 0.2)
    running, waited = threading.Event(), threading.Event()

    def slow(request: AnyRequest, on_event: OnEvent) -> Answer:
        running.set()
        waited.wait(0.4)
        return FINE

    with served(place.socket, ScriptedRunner(slow)), Wire(place.socket) as one, Wire(place.socket) as two:
        two.send(HELLO)
        assert reply(two)["type"] == "state"
        one.send(run_line())
        assert running.wait(SECONDS)
        two.send(HELLO)
        assert reply(two)["type"] == "state"


def test_a_mistake_of_ours_is_an_answer(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(request: AnyRequest, on_event: OnEvent) -> Answer:
        if isinstance(request, Show):
            raise ZeroDivisionError("oh")
        raise MempoolError("no-device", "gone")

    with served(place.socket, ScriptedRunner(broken)), Wire(place.socket) as wire:
        wire.send(run_line(Show(pool="a")) + run_line())
        for code in ("internal", "no-device"):
            answered = protocol.decode_reply(wire.line())
            assert isinstance(answered, protocol.Answered)
            assert answered.answer.failure is not None
            assert answered.answer.failure.code == code
    assert "ZeroDivisionError: oh" in capsys.readouterr().err


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED])
def test_clients_wait_while_none_can_be_taken(place: Place, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    really = socket.socket.accept
    refused: list[float] = []

    def accept(listener: socket.socket) -> tuple[socket.socket, Any]:
        if len(refused) < 3:
            refused.append(time.monotonic())
            raise OSError(code, os.strerror(code))
        return really(listener)

    with served(place.socket, ScriptedRunner(fine)):
        monkeypatch.setattr(socket.socket, "accept", accept)
        with Wire(place.socket) as wire:
            wire.send(run_line())
            assert reply(wire)["type"] == "answer"
    assert refused[2] - refused[0] > 0.15, "it spins"


def test_more_clients_than_descriptors_cost_no_pool(place: Place) -> None:
    script = """
import resource
from mempool_cli.requests import Create
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print(lifecycle.open_or_start("default", SIM).run(Create(location="0"), lambda event: None).exit)
"""
    assert python(script).stdout == "0\n"
    idle = [Wire(place.socket) for _ in range(100)]
    idle[0].send(HELLO)
    assert reply(idle[0])["type"] == "state"
    for wire in idle[:-1]:
        wire.socket.close()
    # It was in the queue behind them all.
    idle[-1].send(HELLO)
    assert reply(idle[-1])["type"] == "state"
    idle[-1].socket.close()
    assert lifecycle.status("default", SIM).session.pools == ("pool-1",)


def test_stop_tells_what_would_not_clear_and_those_who_wait(place: Place) -> None:
    runner = ScriptedRunner(fine)
    runner.pools = ("pool-1",)
    runner.problems = (
        Problem(code="not-cleared", message="device 1"),
        Problem(code="driver-refused", message="pool pool-1 was not destroyed"),
    )
    with (
        served(place.socket, runner) as (server, hooks, thread),
        Wire(place.socket) as waits,
        Wire(place.socket) as stops,
    ):
        waits.send(HELLO)
        assert reply(waits)["type"] == "state"
        stops.send(b'{"type":"stop"}\n')
        stopped = protocol.decode_reply(stops.line())
        assert isinstance(stopped, protocol.Stopped)
        assert stopped.state.pools == ("pool-1",)
        # Of the refused destroy, `not_destroyed` tells.
        assert [notice.code for notice in stopped.notices] == ["not-cleared"]
        assert stopped.not_destroyed == ("pool-1",)
        assert error_of(waits.line()).code == "no-session"
        thread.join(SECONDS)
        assert hooks.withdrawn.is_set()
        assert server.problems == runner.problems
    assert runner.closed == 1


def test_a_first_failure_ends_it_only_when_nobody_else_came(place: Place) -> None:
    answers = [FAILED, FINE]
    runner = ScriptedRunner(lambda request, on_event: answers.pop(0))
    with served(place.socket, runner, provisional=True), Wire(place.socket) as one, Wire(place.socket) as two:
        two.send(HELLO)
        assert reply(two)["type"] == "state"
        one.send(run_line())
        assert reply(one)["ending"] is False
        two.send(run_line())
        assert reply(two)["ending"] is False
        one.send(HELLO)
        assert reply(one)["type"] == "state"


def test_a_first_failure_ends_it_when_the_last_client_leaves(place: Place) -> None:
    runner = ScriptedRunner(lambda request, on_event: FAILED)
    with served(place.socket, runner, provisional=True) as (_, _, thread):
        with Wire(place.socket) as two:
            two.send(HELLO)
            assert reply(two)["type"] == "state"
            with Wire(place.socket) as one:
                one.send(run_line())
                assert reply(one)["ending"] is False
        thread.join(SECONDS)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("result", "stays"),
    [
        (AccessChange(pool=POOL, granted=(1,)), True),
        (AccessChange(pool=POOL, revoked=(1,)), True),
        (AccessChange(pool=POOL, unchanged=(1,), set_access_calls=1), False),
        (AccessChange(pool=POOL, granted=(1,), dry_run=True), False),
        (PoolCreated(pool=POOL, max_size=0, release_threshold=0), True),
        (CurrentPool(device=0, pool=POOL, previous=OTHER), True),
        (CurrentPool(device=0, pool=POOL, previous=POOL), False),
        (PoolsDestroyed(destroyed=(PoolDestroyed(pool=POOL),)), True),
        (PoolsDestroyed(destroyed=()), False),
        (PoolList(pools=()), False),
    ],
    ids=str,
)
def test_a_first_failure_that_changed_something_ends_nothing(place: Place, result: AnyResult, stays: bool) -> None:
    answer = Answer(result=result, failure=NO)
    with (
        served(place.socket, ScriptedRunner(lambda request, on_event: answer), provisional=True) as (_, _, thread),
        Wire(place.socket) as wire,
    ):
        wire.send(run_line())
        assert reply(wire)["ending"] is not stays
        if stays:
            wire.send(run_line())
            assert reply(wire)["ending"] is False
        else:
            thread.join(SECONDS)
        assert thread.is_alive() is stays


@pytest.mark.parametrize("line", [b"", HELLO, b"x" * (2 << 20)], ids=["nothing", "hello", "too-long"])
def test_it_ends_when_the_first_request_never_comes(place: Place, line: bytes) -> None:
    runner = ScriptedRunner(fine)
    with served(place.socket, runner, provisional=True, idle_timeout=60, first_use=0.1) as (_, hooks, thread):
        with Wire(place.socket) as wire:
            wire.send(line)
            if line:
                wire.line()
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert hooks.withdrawn.is_set()


def test_after_the_first_request_it_lives_as_long_as_any(place: Place) -> None:
    runner = ScriptedRunner(fine)
    with served(place.socket, runner, provisional=True, idle_timeout=60, first_use=0.1) as (_, _, thread):
        with Wire(place.socket) as wire:
            wire.send(run_line())
            assert reply(wire)["type"] == "answer"
        thread.join(0.3)
        assert thread.is_alive()


def test_idle_counts_from_the_last_request(place: Place) -> None:
    with served(place.socket, ScriptedRunner(fine), idle_timeout=1) as (_, _, thread):
        with Wire(place.socket) as wire:
            wire.send(run_line())
            assert reply(wire)["type"] == "answer"
        thread.join(SECONDS)
        assert not thread.is_alive()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_other_users_are_not_served(place: Place) -> None:
    with served(place.socket, ScriptedRunner(fine)):
        for path in (place.socket, place.directory, place.directory.parent):
            path.chmod(0o777)
        script = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({str(place.socket)!r})\n"
        script += "s.settimeout(20); print(s.recv(100)); s.close()"
        assert python(script, user=65534).stdout == "b''\n"
    place.socket.unlink()
    script = f"import socket; s = socket.socket(socket.AF_UNIX); s.bind({str(place.socket)!r}); s.listen()\n"
    script += "os.chmod(s.getsockname(), 0o777); print('ready', flush=True); sys.stdin.read()"
    with python_process(script, user=65534) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        place.directory.chmod(0o700)
        place.directory.parent.chmod(0o700)
        problem = failure(lambda: lifecycle.find("default", SIM))
        assert problem.code == "runtime-directory"
        assert "a process of uid 65534 listens on" in problem.message
        process.stdin.close()  # type: ignore[union-attr]


def test_a_full_queue_is_waited_for(place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(place.socket))
        listener.listen(0)
        with Wire(place.socket):
            lock = Lock.take(place.lock)
            assert lock
            problem = failure(lambda: lifecycle.find("default", SIM, timeout=0.1))
            assert problem.code == "session-busy"
            lock.release()
    assert files(place.directory) == ["sim-default.socket"]


def wait_for_hang_up(waiting: socket.socket) -> None:
    """Waits until the other side has hung up."""
    poller = select.poll()
    poller.register(waiting, select.POLLHUP)
    assert poller.poll(SECONDS * 1000)
