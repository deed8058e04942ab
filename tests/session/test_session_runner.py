"""What a command meets when it asks a session: the right one, another one, one that dies."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mempool_cli
from mempool_cli.driver import driver_source
from mempool_cli.errors import Problem
from mempool_cli.model import DeviceList, Event
from mempool_cli.requests import Create, Devices, Grant, List, Probe, Show
from mempool_cli.session import client, compatible, lifecycle, protocol
from mempool_cli.session.client import SessionRunner
from mempool_cli.session.directory import Place

from .hosts import SIM, failure, files, ignore, kill, start

# Its trace is longer than what a socket holds: the session still runs when the first event comes.
LONG = "64"


def runner(name: str = "default", sim: str = "4", timeout: float | None = None) -> SessionRunner:
    found = lifecycle.find(name, driver_source(sim), timeout=timeout)
    assert found
    return found


def test_trace(runtime: Path) -> None:
    start()
    events: list[Event] = []
    assert runner().run(Probe(pools=("0",)), events.append, trace=True).exit == 0
    assert {event.kind for event in events} == {"trace"}
    assert any("cuMemPoolGetAccess" in event.text for event in events)
    assert runner().run(Probe(), lambda event: pytest.fail(event.text)).exit == 0


def test_failures_of_the_operation_are_in_the_answer(runtime: Path) -> None:
    start()
    answer = runner().run(Grant(pool="missing", to=("1",)), ignore)
    assert answer.failure is not None
    assert answer.failure.code == "unknown-pool"
    assert answer.where is not None


def test_another_machine(runtime: Path) -> None:
    start(sim="8")
    for call in (
        lambda: lifecycle.find("default", SIM),
        lambda: lifecycle.open_or_start("default", SIM),
        lambda: lifecycle.start("default", SIM),
    ):
        problem = failure(call)
        assert (problem.code, problem.exit) == ("other-driver", 5)
        assert problem.message == "session default simulates '8', not '4'"
        assert problem.hint == ("`--sim 8`, another name with `--session NAME`, or `mempool session stop` first")
    for result in (lifecycle.status("default", SIM), lifecycle.stop("default", SIM)):
        assert result.session.sim == "8"
        assert [(each.code, each.message) for each in result.warnings] == [("other-driver", problem.message)]
    pid = start(sim="8")
    assert lifecycle.status("default", driver_source("8")).warnings == ()
    killed = lifecycle.stop("default", SIM, kill=True)
    assert (killed.session.pid, [each.code for each in killed.warnings]) == (pid, ["other-driver"])


def test_the_same_machine_by_another_name(runtime: Path, tmp_path: Path) -> None:
    start(sim="4")
    (tmp_path / "four.toml").write_text('[[device]]\nname = "NVIDIA H200"\ncount = 4\n[p2p]\nall = true\n')
    same = driver_source(str(tmp_path / "four.toml"))
    assert same.digest == SIM.digest
    assert lifecycle.find("default", same)


def test_the_same_file_with_other_content(runtime: Path, tmp_path: Path) -> None:
    spec = tmp_path / "machine.toml"
    spec.write_text("[[device]]\n")
    start(sim=str(spec))
    spec.write_text("[[device]]\ncount = 2\n")
    problem = failure(lambda: lifecycle.find("default", driver_source(str(spec))))
    assert problem.message == (
        f"session default simulates another machine under the same SPEC {str(spec)!r}:"
        " another file, or this one before a change"
    )
    assert problem.hint == "another name with `--session NAME`, or `mempool session stop` first"


def test_a_short_timeout_does_not_count_the_start(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = lifecycle._boot

    def slow(*args: Any, **kwargs: Any) -> protocol.HostState:
        state = really(*args, **kwargs)
        monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 30)
        return state

    monkeypatch.setattr(lifecycle, "_boot", slow)
    assert lifecycle.open_or_start("default", SIM, timeout=10).run(Probe(), ignore).exit == 0


def test_another_version(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    monkeypatch.setattr(compatible, "__version__", "9.9")
    problem = failure(lambda: lifecycle.find("default", SIM))
    assert (problem.code, problem.exit) == ("other-version", 5)
    assert problem.message == f"session default runs mempool {mempool_cli.__version__}, this command is mempool 9.9"
    assert problem.hint
    assert "mempool session stop" in problem.hint
    assert lifecycle.status("default", SIM).session.version == mempool_cli.__version__
    lifecycle.stop("default", SIM)


def test_other_message_types(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    monkeypatch.setattr(protocol, "messages_digest", lambda: "0")
    assert "from different source" in failure(lambda: lifecycle.find("default", SIM)).message


def test_another_environment(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    asked = runner()
    listed = asked.run(Devices(), ignore).result
    assert isinstance(listed, DeviceList)
    assert [(notice.code, notice.message) for notice in listed.warnings] == [
        (
            "other-environment",
            "device numbers are those of session default:"
            " CUDA_VISIBLE_DEVICES is not set in session default, and '1,0' here",
        )
    ]
    uuid = listed.devices[1].uuid
    created = asked.run(Create(location=uuid, name="a", to=("all",)), ignore)
    assert created.exit == 0
    for answer in (created, asked.run(List(), ignore), asked.run(Probe(), ignore), asked.run(Show(pool="a"), ignore)):
        assert answer.result is not None
        assert [notice.code for notice in answer.result.warnings] == ["other-environment"]
    problem = failure(lambda: asked.run(Grant(pool="a", to=("2",)), ignore))
    assert (problem.code, problem.exit) == ("other-environment", 5)
    assert "CUDA_VISIBLE_DEVICES is not set in session default, and '1,0' here" in problem.message


def test_a_session_that_dies_in_the_middle(runtime: Path) -> None:
    pid = start(sim=LONG)
    asked = runner(sim=LONG)
    problem = failure(lambda: asked.run(Probe(), lambda event: kill_once(pid), trace=True))
    assert (problem.code, problem.exit) == ("session-died", 5)
    assert f"session default (pid {pid}) died: no trace" in problem.message
    assert lifecycle.find("default", driver_source(LONG)) is None


def kill_once(pid: int) -> None:
    if Path(f"/proc/{pid}").exists():
        kill(pid)


def test_a_session_that_hangs_in_the_middle(runtime: Path) -> None:
    pid = start(sim=LONG)
    asked = runner(sim=LONG, timeout=0.3)
    problem = failure(lambda: asked.run(Probe(), lambda event: os.kill(pid, signal.SIGSTOP), trace=True))
    assert (problem.code, problem.exit) == ("outcome-unknown", 5)
    assert problem.message == "session default gave no answer in 0.3 s; it may still do what was asked"
    assert problem.hint == "see `mempool show`; `--timeout SECONDS` waits longer"


def test_an_interrupted_client_does_no_harm(runtime: Path) -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    start(sim=LONG)
    with pytest.raises(KeyboardInterrupt):
        runner(sim=LONG).run(Probe(), interrupt, trace=True)
    assert runner(sim=LONG).run(List(), ignore).exit == 0


@pytest.mark.parametrize(
    ("word", "code", "status"), [("x" * (1 << 20), "bad-request", 5), ("\udcff", "usage", 2)], ids=["long", "bytes"]
)
def test_requests_that_cannot_be_sent_start_nothing(runtime: Path, word: str, code: str, status: int) -> None:
    asked = lifecycle.open_or_start("default", SIM)
    problem = failure(lambda: asked.run(Grant(pool=word, to=("1",)), ignore))
    assert (problem.code, problem.exit) == (code, status)
    assert files(runtime) == []


def test_a_host_of_another_kind_of_answer(place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(place.socket))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b'{"type":"poem"}\n')

        thread = threading.Thread(target=answer)
        thread.start()
        problem: Problem = failure(lambda: client.reach(place, time.monotonic() + 5))
        thread.join()
    assert problem.code == "other-version"
