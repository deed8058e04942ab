"""Trials in processes of their own: whatever becomes of them is a result."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from mempool_cli.child import run_trial

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
    begun = time.monotonic()
    done = run_trial(f"{TRIALS}:hang", b"", limit=0.5)
    assert (done.ended, done.last_call, done.remains) == ("hung", "cuMemPoolCreate(device 0, max_size 1)", None)
    assert time.monotonic() - begun < 5


def test_an_exit_and_a_fault_of_ours() -> None:
    done = run_trial(f"{TRIALS}:exit_", b"3", limit=20)
    assert (done.ended, done.status, done.result) == ("exit", 3, None)
    done = run_trial(f"{TRIALS}:fail", b"", limit=20)
    assert (done.ended, done.status, done.words.splitlines()[-1]) == ("exit", 1, "RuntimeError: out of order")


def test_no_core_is_dumped() -> None:
    assert run_trial(f"{TRIALS}:core", b"", limit=20).result == b"0"


def test_an_interrupt_leaves_no_child() -> None:
    before, handler = set(_children()), signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run_trial(f"{TRIALS}:hang", b"", limit=20)
    timer.join()
    signal.signal(signal.SIGINT, handler)
    assert set(_children()) == before


def _children() -> list[int]:
    with open(f"/proc/self/task/{threading.get_native_id()}/children") as file:  # noqa: PTH123
        return [int(pid) for pid in file.read().split()]
