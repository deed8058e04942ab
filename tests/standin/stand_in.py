"""The stand-in driver library from a test's side: build it, put machines behind it, run programs on it."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

import mempool_cli
from mempool_cli.driver.identity import loaded_libcuda
from mempool_cli.driver.sim.profile import Failure, parse_spec

HERE = Path(__file__).parent
SOURCES = ("connection.c", "host_memory.c", "libcuda.c", "proc_address.c")
COMPILER = shutil.which(os.environ.get("CC", "cc"))

_FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror", f"-I{HERE}", "-pthread")
_PACKAGE = __spec__.parent or ""
_PATH = os.pathsep.join(
    [str(Path(mempool_cli.__file__).parents[1]), str(Path(__file__).parents[_PACKAGE.count(".") + 1])]
)
_SECONDS = 30


class StandIn:
    """The library in `directory`, which must have a short path, and the server of its machines."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._machines = 0
        self._server: subprocess.Popen[str] | None = None

    @cached_property
    def library(self) -> Path:
        """libcuda.so.1; beside it libcuda.so, for -lcuda."""
        return self._build(self._directory / "lib")

    @cached_property
    def library_before_12(self) -> Path:
        """libcuda.so.1 as before CUDA 12.0: without cuGetProcAddress_v2."""
        return self._build(self._directory / "lib11", "-DBEFORE_CUDA_12")

    def _build(self, directory: Path, *flags: str) -> Path:
        directory.mkdir()
        library = directory / "libcuda.so.1"
        sources = [str(HERE / name) for name in SOURCES]
        compile_c(*flags, "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-o", str(library), *sources)
        (directory / "libcuda.so").symlink_to(library.name)
        return library

    @contextmanager
    def machine(
        self,
        spec: str = "8",
        *,
        failures: Sequence[Failure] = (),
        answers: Mapping[str, Sequence[int | str]] | None = None,
        **profile: Any,
    ) -> Iterator[str]:
        """A fresh machine, as the path of its socket.

        `answers` are what calls answer whatever the machine thinks, code first: `{"cuMemPoolGetAccess": [0, 7]}`;
        texts are hexadecimal. Further keywords replace fields of the profile.
        """
        described = msgspec.structs.replace(parse_spec(spec), failures=tuple(failures), **profile)
        self._machines += 1
        path = str(self._directory / f"{self._machines}")
        self._order({"socket": path, "profile": described, "answers": answers or {}})
        try:
            yield path
        finally:
            self._order({"close": path})

    def _order(self, order: dict[str, Any]) -> None:
        server = self._server = self._server or _start_server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(msgspec.json.encode(order).decode() + "\n")
        server.stdin.flush()
        assert server.stdout.readline() == "done\n", "the stand-in's server has died; its traceback is on stderr"

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The server answers nothing in here: driver calls do not return."""
        assert self._server is not None
        self._server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends the server."""
        if self._server is not None:
            with self._server as server:
                server.communicate(timeout=_SECONDS)

    def load(self) -> ctypes.CDLL:
        """Makes it this process's CUDA driver, for good. RuntimeError when the process has another one already."""
        loaded = loaded_libcuda()
        if loaded is not None and Path(loaded.path) != self.library.resolve():
            raise RuntimeError(f"this process has loaded {loaded.path}")
        return ctypes.CDLL(str(self.library), mode=ctypes.RTLD_GLOBAL)

    def run(
        self, command: Sequence[str], socket: str, *, library: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program whose CUDA driver is this one."""
        directory = (library or self.library).parent
        return subprocess.run(
            command,
            env={**program_environment(), **machine_environment(directory, socket), **environment},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )

    def run_python(
        self, code: str, socket: str, *, library: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs Python code in an interpreter of its own."""
        return self.run([sys.executable, "-P", "-c", code], socket, library=library, **environment)


def machine_environment(directory: Path, socket: str) -> dict[str, str]:
    """What makes the library in `directory` a program's driver, and the machine at `socket` its machine."""
    return {"LD_LIBRARY_PATH": str(directory), "MEMPOOL_STANDIN_SOCKET": socket}


def program_environment() -> dict[str, str]:
    """The environment of a program that imports the package and the tests, without what belongs to one test."""
    return {**_inherited(), "PYTHONPATH": _PATH}


def compile_c(*arguments: str) -> None:
    """Runs the C compiler, where a warning is an error."""
    assert COMPILER is not None
    done = subprocess.run([COMPILER, *_FLAGS, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _inherited() -> dict[str, str]:
    """The environment less what belongs to one test, which the server outlives."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("CUDA_", "MEMPOOL_"))}


def _start_server() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", f"{_PACKAGE}.server"],
        env={**_inherited(), "PYTHONPATH": _PATH},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
