"""What all tests share: a runtime directory of their own, and an environment that says nothing."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hardware import device_count


def _left(directory: Path) -> list[int]:
    """The processes that were started with this runtime directory, this one left out."""
    mark = f"MEMPOOL_RUNTIME_DIR={directory}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes() + b"\0":
                    found.append(int(entry.name))
    return found


_SILENT = {
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PY_COLORS", "TTY_COMPATIBLE"),
    *("CI", "GITHUB_ACTIONS", "LANG", "LANGUAGE", "PYTHONIOENCODING", "PYTHONUTF8"),
}


@pytest.fixture(autouse=True)
def silent_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the user's changes what a test sees."""
    for name in list(os.environ):
        if name in _SILENT or name.startswith(("MEMPOOL_", "CUDA_", "LC_")):
            monkeypatch.delenv(name)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty runtime directory with a short path; no process that knows it outlives the test."""
    parent = Path(tempfile.mkdtemp(prefix="mp-", dir="/tmp"))
    directory = parent / "run"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("MEMPOOL_RUNTIME_DIR", str(directory))
    yield directory
    for pid in _left(directory):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    shutil.rmtree(parent)


def pytest_configure() -> None:
    """Ctrl-C reaches what the tests start, also where a script runs them in the background, with SIGINT ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    """What of the hardware tests can run here."""
    return f"hardware: {device_count()} CUDA devices (gpu tests need 1, gpu2 tests need 2)"
