"""What hardware the tests have. Asked in a child: this process may be about to use the stand-in library."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

_COUNT = (
    "from mempool_cli.driver.cuda import CudaDriver\n"
    "driver = CudaDriver()\n"
    "driver.init()\n"
    "print(driver.device_get_count())\n"
)


REACH = (
    "from mempool_cli.driver.cuda import CudaDriver\n"
    "driver = CudaDriver()\n"
    "driver.init()\n"
    "pairs = ((0, 1), (1, 0))\n"
    "print([pair for pair in pairs if not driver.device_can_access_peer(*pair)] or '')\n"
)
"""Prints which of the first two devices cannot reach the other, if any."""


def _answer(program: str) -> str | None:
    """What the program prints; None without a driver."""
    if not Path("/dev/nvidiactl").exists() and not Path("/dev/dxg").exists():
        return None
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return child.stdout.strip() if child.returncode == 0 else None


@functools.cache
def device_count() -> int:
    """The CUDA devices of this machine; 0 without a driver."""
    return int(_answer(_COUNT) or 0)


def missing(needed: int) -> str:
    """Why a test that needs so many devices is skipped."""
    return f"needs {needed} CUDA device{'s' if needed > 1 else ''}, this machine has {device_count()}"


@functools.cache
def no_peers() -> str:
    """Why a test that needs two devices which can reach each other is skipped; empty where there are two."""
    if device_count() < 2:
        return missing(2)
    apart = _answer(REACH)
    if apart is None:
        return "the driver does not say whether devices 0 and 1 can reach each other"
    return f"devices 0 and 1 cannot reach each other: (accessor, owner) {apart}" if apart else ""


def run_python(program: str, **environment: str) -> str:
    """The stdout of a fresh interpreter that runs the program; it must succeed."""
    child = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout
