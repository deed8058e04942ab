"""Fixtures that put the real bindings on the stand-in driver library, within this process.

A process has one CUDA driver for its life: the library is loaded by the first test that needs it and stays. Between
tests it forgets its connection, so each test meets a machine as a new process does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mempool_cli.driver.cuda import CudaDriver

from .stand_in import COMPILER, StandIn

OnMachine = Callable[..., CudaDriver]


@pytest.fixture(scope="session")
def standin() -> Iterator[StandIn]:
    if COMPILER is None:
        pytest.skip("no C compiler: cc is not on PATH")
    # Not tmp_path: a socket's path holds 107 bytes.
    with tempfile.TemporaryDirectory(prefix="standin-", dir="/tmp") as directory:
        library = StandIn(Path(directory))
        yield library
        library.close()


@pytest.fixture
def on_machine(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[OnMachine]:
    """`on_machine(spec, visible=..., failures=..., answers=...)`: CudaDriver on a fresh machine, cuInit not called."""
    try:
        library = standin.load()
    except RuntimeError as error:
        pytest.skip(str(error))
    with ExitStack() as machines:

        def place(spec: str = "8", *, visible: str | None = None, **options: Any) -> CudaDriver:
            monkeypatch.setenv("MEMPOOL_STANDIN_SOCKET", machines.enter_context(standin.machine(spec, **options)))
            if visible is None:
                monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
            else:
                monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
            library.mempool_standin_reset()
            return CudaDriver()

        yield place
        library.mempool_standin_reset()


@pytest.fixture
def standin_driver(on_machine: OnMachine) -> CudaDriver:
    """The real bindings on eight simulated devices, all of which reach each other; cuInit has been called."""
    driver = on_machine("8")
    driver.init()
    return driver
