"""What keeps CUDA from being used at all is told apart: no bindings, no driver library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mempool_cli
from mempool_cli.driver import identity
from mempool_cli.driver.identity import kernel_module, loaded_libcuda
from mempool_cli.exit_status import MACHINE
from mempool_cli.model import KernelModule, Libcuda

REPORT = """
import json
from mempool_cli.errors import MempoolError
try:
    from mempool_cli.driver.cuda import CudaDriver
    driver = CudaDriver()
    try:
        driver.init()
    except MempoolError:
        driver.init()  # old bindings fail in another way the second time
except MempoolError as error:
    print(json.dumps([error.problem.code, error.problem.exit, error.problem.message]))
"""
WITHOUT_BINDINGS = """
import sys
for name in [name for name in sys.modules if name.split(".")[0] == "cuda"]:
    del sys.modules[name]  # a .pth file may have imported some of it
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "cuda":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
NO_LIBRARY = ["no-driver", MACHINE, "the CUDA driver library, libcuda.so.1, cannot be loaded"]


def report(prelude: str = "", **environment: str) -> list[object]:
    """How CUDA fails in an interpreter of its own: this one may have loaded a driver. Empty when it does not."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", prelude + REPORT],
        env={**os.environ, "PYTHONPATH": str(Path(mempool_cli.__file__).parents[1]), **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    answer: list[object] = json.loads(done.stdout or "[]")
    return answer


def test_no_bindings() -> None:
    message = "NVIDIA's Python bindings cannot be imported: No module named 'cuda'"
    assert report(WITHOUT_BINDINGS) == ["no-bindings", MACHINE, message]


def test_no_driver_library() -> None:
    answer = report()
    if answer[:1] != ["no-driver"]:
        pytest.skip("this machine has a CUDA driver")
    assert answer == NO_LIBRARY


def test_a_driver_library_that_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    assert report(LD_LIBRARY_PATH=str(tmp_path)) == NO_LIBRARY


@pytest.mark.parametrize(
    ("file", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", "580.159.04"),
        ("/opt/compat/libcuda.so.570.86.15", "570.86.15"),
        ("/usr/lib/wsl/lib/libcuda.so.1.1", None),
        ("/opt/with space/libcuda.so.1", None),
    ],
)
def test_the_loaded_library_is_read_from_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, version: str | None
) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r--p 00000000 08:01 41 /usr/local/cuda/lib64/libcudart.so.13.0.96\n"
        f"7f02-7f03 r-xp 00001000 08:01 42                         {file}\n"
        f"7f03-7f04 r--p 00002000 08:01 42                         {file}\n"
    )
    monkeypatch.setattr(identity, "_MAPS", maps)
    assert loaded_libcuda() == Libcuda(file, version)


def test_a_process_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r--p 00000000 08:01 41 /usr/lib/libcudadebugger.so.580.159.04\n7f05-7f06 rw-p 0 0:0 0\n")
    for path in (maps, tmp_path / "absent"):
        monkeypatch.setattr(identity, "_MAPS", path)
        assert loaded_libcuda() is None


@pytest.mark.parametrize(
    ("line", "module"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder)",
            KernelModule("580.159.04", "open"),
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023",
            KernelModule("535.104.05", "proprietary"),
        ),
        ("something else", None),
    ],
)
def test_the_kernel_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, module: KernelModule | None
) -> None:
    file = tmp_path / "version"
    file.write_text(f"{line}\nGCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n")
    monkeypatch.setattr(identity, "_MODULE", file)
    assert kernel_module() == module


def test_no_kernel_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_MODULE", tmp_path / "absent")
    assert kernel_module() is None
