"""The Multi-Process Service: whether it can be met here, and how not to meet it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PIPES = "CUDA_MPS_PIPE_DIRECTORY"
NOWHERE = "/nonexistent"
"""What PIPES says in a process that is to find no MPS server: nobody but root could put one there."""

_USUAL = "/tmp/nvidia-mps"  # noqa: S108 - where the driver looks


def control_pipe() -> Path | None:
    """The pipe of a control daemon that CUDA would find; it may be of another container, whose processes are hidden."""
    pipe = Path(os.environ.get(PIPES) or _USUAL, "control")
    return pipe if pipe.exists() else None


@contextmanager
def without_mps(directory: Path) -> Iterator[None]:
    """CUDA initialised in here finds no MPS server: a client would keep it alive, and a fault of it end the others.

    `directory` is made, and removed again.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    before = os.environ.get(PIPES)
    os.environ[PIPES] = str(directory)
    try:
        yield
    finally:
        with suppress(OSError):
            directory.rmdir()
        if before is None:
            del os.environ[PIPES]
        else:
            os.environ[PIPES] = before
