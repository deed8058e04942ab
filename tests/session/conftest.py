from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mempool_cli.session.directory import Place


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


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty runtime directory with a short path; no process that knows it outlives the test."""
    for name in list(os.environ):
        if name.startswith(("MEMPOOL_", "CUDA_")):
            monkeypatch.delenv(name)
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


@pytest.fixture
def place(runtime: Path) -> Place:
    """Where the simulated session `default` is."""
    return Place(runtime, True, "default")
