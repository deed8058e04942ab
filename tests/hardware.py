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


@functools.cache
def device_count() -> int:
    """The CUDA devices of this machine; 0 without a driver."""
    if not Path("/dev/nvidiactl").exists() and not Path("/dev/dxg").exists():
        return 0
    child = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, timeout=60, check=False)
    return int(child.stdout) if child.returncode == 0 else 0


def missing(needed: int) -> str:
    """Why a test that needs so many devices is skipped."""
    return f"needs {needed} CUDA device{'s' if needed > 1 else ''}, this machine has {device_count()}"


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
