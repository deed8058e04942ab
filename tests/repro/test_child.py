"""Trials in processes of their own: whatever becomes of them is a result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from cli.processes import asleep, wait_until, with_mark

from mempool_cli.child import Child, run_trial, wait

TRIALS = f"{__package__}.trials"


@pytest.fixture(autouse=True)
def _package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The children find this package: they import from where this process does."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    monkeypatch.syspath_prepend(here)


def test_a_result() -> None:
    big = b"x" * (1 << 20)
    done = run_trial(f"{TRIALS}:echo", big, limit=20)
    assert (done.ended, done.result, done.calls, done.last_call) == ("returned", big, ("cuInit()",), "cuInit()")
    assert (done.words, done.status, done.signal, done.remains) == ("said", 0, None, None)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGABRT"])
def test_a_crash(name: str) -> None:
    done = run_trial(f"{TRIALS}:crash", name.encode(), limit=20)
    assert (done.ended, done.signal, done.result) == ("signal", name, None)
    assert done.last_call == "cuMemPoolGetAccess(0x1234, device 0)"


def test_a_hang() -> None:
    done = run_trial(f"{TRIALS}:hang", b"", limit=0.5)
    assert (done.ended, done.last_call, done.remains) == ("hung", "cuMemPoolCreate(device 0, max_size 1)", None)


def test_an_exit_and_a_fault_of_ours() -> None:
    done = run_trial(f"{TRIALS}:exit_", b"3", limit=20)
    assert (done.ended, done.status, done.result) == ("exit", 3, None)
    done = run_trial(f"{TRIALS}:fail", b"", limit=20)
    assert (done.ended, done.status, done.words.splitlines()[-1]) == ("exit", 1, "RuntimeError: out of order")


def test_what_has_arrived_counts_however_late_it_is_looked_at() -> None:
    with ExitStack() as stack:
        child = Child(stack, f"{TRIALS}:echo", b"late", limit=0.5)
        time.sleep(1.0)
        while not child.over:
            wait([child])
        assert (child.end().ended, child.deadline < time.monotonic()) == ("returned", True)


def test_who_has_returned_may_take_its_time_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mempool_cli.child._GONE_SECONDS", 0.3)
    done = run_trial(f"{TRIALS}:lingers", b"it", limit=20)
    assert (done.ended, done.result, done.remains) == ("returned", b"it", None)


def test_its_own_alarm_is_a_hang() -> None:
    assert run_trial(f"{TRIALS}:crash", b"SIGALRM", limit=20).ended == "hung"


def test_the_end_of_its_parent_is_its_own() -> None:
    mark = os.urandom(8).hex()
    program = f"from mempool_cli.child import run_trial\nrun_trial('{TRIALS}:hang', b'', limit=60)\n"
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "MEMPOOL_TEST_MARK": mark, "PYTHONPATH": path}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as parent:
        wait_until(lambda: len(with_mark(mark)) == 2)
        parent.kill()
    wait_until(lambda: not with_mark(mark))


@pytest.mark.parametrize("name", ["CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_LAUNCH_BLOCKING"])
def test_no_gpu_core_is_dumped_and_a_fault_comes_when_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")
    assert run_trial(f"{TRIALS}:variable", name.encode(), limit=20).result == b""


def test_it_is_no_client_of_mps_unless_it_is_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/a/server")
    trial, name = f"{TRIALS}:variable", b"CUDA_MPS_PIPE_DIRECTORY"
    assert run_trial(trial, name, limit=20).result == b"/nonexistent"
    assert run_trial(trial, name, limit=20, apart=False).result == b"/a/server"


def test_no_core_is_dumped() -> None:
    assert run_trial(f"{TRIALS}:core", b"", limit=20).result == b"0"


def test_an_interrupt_leaves_no_child() -> None:
    before, handler = (
        set(_children(threading.get_native_id())),
        signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    us = threading.get_native_id()

    def interrupt() -> None:
        wait_until(lambda: asleep([*set(_children(us)) - before]))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_trial(f"{TRIALS}:hang", b"", limit=20)
    finally:
        thread.join()
        signal.signal(signal.SIGINT, handler)
    assert set(_children(us)) == before


def _children(thread: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{thread}/children").read_text().split()]
