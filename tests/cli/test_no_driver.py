"""A machine without NVIDIA's bindings, or without its driver: told apart, and the rest works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Done, MempoolProcess
from .documents import failure

NO_BINDINGS = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "cuda"]:
    del sys.modules[name]  # a .pth file may have imported some of it
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "cuda":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


@pytest.fixture
def without_bindings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_BINDINGS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}")


@pytest.fixture
def without_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a machine that has one: what stands first in the library path is no library."""
    (tmp_path / "libcuda.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))


BINDINGS = """\
error: NVIDIA's Python bindings cannot be imported: No module named 'cuda' [no-bindings]
  try: pip install 'cuda-bindings>=12.9,<14'; `--sim 4` tries the tool without them
"""
DRIVER = """\
error: the CUDA driver library, libcuda.so.1, cannot be loaded [no-driver]
  try: install the NVIDIA driver, or give the container its GPUs; `--sim 4` tries the tool without one
"""
HARDWARE = [("devices",), ("probe", "--matrix"), ("grant", "0", "--to", "1"), ("session", "start")]


def check_the_rest(mempool: MempoolProcess) -> None:
    assert mempool("--help").status == mempool("grant", "--help").status == mempool("--version").status == 0
    assert mempool("--sim", "2", "devices").status == 0
    assert mempool("session", "list") == Done(0, "no session runs\n", "")


@pytest.mark.parametrize("arguments", HARDWARE, ids=" ".join)
@pytest.mark.usefixtures("without_bindings")
def test_no_bindings(mempool_process: MempoolProcess, arguments: tuple[str, ...]) -> None:
    assert mempool_process(*arguments) == Done(3, "", BINDINGS)


@pytest.mark.usefixtures("without_bindings")
def test_the_rest_works_without_bindings(mempool_process: MempoolProcess) -> None:
    check_the_rest(mempool_process)
    done = mempool_process("--format", "json", "create", "0")
    assert failure(done)[:3] == (3, "create", "no-bindings")


@pytest.mark.parametrize("arguments", HARDWARE, ids=" ".join)
@pytest.mark.usefixtures("without_driver")
def test_no_driver(mempool_process: MempoolProcess, arguments: tuple[str, ...]) -> None:
    assert mempool_process(*arguments) == Done(3, "", DRIVER)


@pytest.mark.usefixtures("without_driver")
def test_the_rest_works_without_a_driver(mempool_process: MempoolProcess) -> None:
    check_the_rest(mempool_process)
    done = mempool_process("--format", "json", "create", "0")
    assert failure(done)[:3] == (3, "create", "no-driver")
