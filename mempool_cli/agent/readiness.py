"""Whether the program has initialised CUDA, found out without doing it."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from mempool_cli.driver.codes import Code
from mempool_cli.driver.identity import loaded_libcuda
from mempool_cli.driver.port import Driver
from mempool_cli.errors import DriverError, MempoolError

NOT_INITIALISED = "not-initialised"

# On a server NVML opens the first one too, and only cuInit also maps a card or the control device (580.159.04).
_UVM = "nvidia-uvm"
_MAPPED = re.compile(rb"/nvidia(?:ctl|[0-9]+)\n")
_ELSEWHERE = frozenset({"dxg", "nvmap"})  # what it opens in WSL and on a Tegra


def seems_initialised() -> bool:
    """Whether this process has the device files open, and mapped, that cuInit opens and maps.

    No driver call: it can be asked at any time.
    """
    open_files = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor of the listing itself, at least, is gone
            open_files.add(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
    if open_files & _ELSEWHERE:
        return True
    if _UVM not in open_files:
        return False
    with open("/proc/self/maps", "rb") as maps:
        return _MAPPED.search(maps.read()) is not None


def check_initialised(driver: Driver) -> None:
    """MempoolError `not-initialised` unless cuInit has been called in this process.

    Driver calls: none when the program has not even loaded libcuda, which a call would do; else cuDeviceGetCount,
    which answers NOT_INITIALIZED otherwise and initialises nothing (measured: a child forked after it can).
    """
    if loaded_libcuda() is not None:
        try:
            driver.device_get_count()
            return
        except DriverError as error:
            if error.words.code != Code.CUDA_ERROR_NOT_INITIALIZED:
                raise
    raise MempoolError(
        NOT_INITIALISED,
        "the program has not initialised CUDA yet",
        hint="`--wait SECONDS` waits until it has",
    )
