"""Interpreters that have mempool installed, or not, and programs compared with themselves under `mempool exec`."""

from __future__ import annotations

import json
import re
import site
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, NamedTuple

import mempool_cli

from .worlds import SECONDS, World

PACKAGE = str(Path(mempool_cli.__file__).parents[1])
LIBRARIES = [path for path in (*site.getsitepackages(), site.getusersitepackages()) if Path(path).is_dir()]

_EXEC = f"import sys; sys.path[:0] = {[PACKAGE, *LIBRARIES]!r}; from mempool_cli.__main__ import main; main()"
EXEC = [sys.executable, "-I", "-c", _EXEC, "exec"]
"""`mempool exec` that takes nothing from PYTHONPATH."""


def interpreter(directory: Path, *paths: str) -> str:
    """The python of a new virtual environment in which `paths` are installed."""
    venv.create(directory, symlinks=True)
    packages = next(directory.glob("lib/python*/site-packages"))
    (packages / "installed.pth").write_text("".join(f"{path}\n" for path in paths))
    return str(directory / "bin" / "python")


_CHILDREN = re.compile(rb"(mempool: program train\.(\d+) \(pid \2\): this is its name: another has the shorter one\n)*")


class Outcome(NamedTuple):
    """How a command ended, byte by byte."""

    status: int
    out: bytes
    err: bytes


def outcome(world: World, *command: str, stdin: bytes = b"", **environment: str | None) -> Outcome:
    """A command to its end; a variable that is None is not there."""
    variables = {key: value for key, value in {**world.environment, **environment}.items() if value is not None}
    done = subprocess.run(command, env=variables, input=stdin, capture_output=True, timeout=SECONDS, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def both(
    world: World, *command: str, stdin: bytes = b"", options: tuple[str, ...] = (), **environment: str | None
) -> tuple[Outcome, Outcome]:
    """The command under `mempool exec`, and by itself."""
    return (
        outcome(world, *EXEC, *options, "--", *command, stdin=stdin, **environment),
        outcome(world, *command, stdin=stdin, **environment),
    )


def shown(done: Outcome) -> Any:
    """What a program printed as JSON that ended well, and said at most under which names its children are."""
    assert done.status == 0, done.err
    assert _CHILDREN.fullmatch(done.err), done.err
    return json.loads(done.out)
