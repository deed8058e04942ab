"""Which driver answered: its versions, the library that this process loaded, and the kernel's side of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mempool_cli.errors import MempoolError
from mempool_cli.model import DriverInfo, KernelModule, Libcuda
from mempool_cli.utf8 import utf8

if TYPE_CHECKING:
    from mempool_cli.driver.port import Driver

STUB_HINT = "the libcuda that was loaded is the toolkit's stub; put the driver's own libcuda.so.1 first"

_FLOOR = 12000
_MAPS = Path("/proc/self/maps")
_MODULE = Path("/proc/driver/nvidia/version")

_MAPPED = re.compile(r"\s(/\S.*/libcuda\.so[.\d]*)(?: \(deleted\))?$", re.MULTILINE)
_FILE_VERSION = re.compile(r"libcuda\.so\.(\d{3,}\.\d+(?:\.\d+)*)")  # not the soname's .1, nor WSL's .1.1
_MODULE_VERSION = re.compile(r"Kernel Module\b.*?\s(\d+\.\d+(?:\.\d+)*)\s")


def describe(driver: Driver, sim: str | None) -> DriverInfo:
    """Who answers. `sim` is the SPEC of a simulated machine, None on hardware. One driver call.

    MempoolError `driver-too-old` for hardware below CUDA 12.0: bindings before 13.5 and 12.9.10 start on such a
    driver.
    """
    version = driver.driver_get_version()
    spelled = f"{version // 1000}.{version % 1000 // 10}"
    if sim is not None:
        return DriverInfo(kind="sim", cuda_version=spelled, sim=sim)
    if version < _FLOOR:
        raise too_old(spelled)
    real: Any = driver
    return DriverInfo(
        kind="cuda",
        cuda_version=spelled,
        bindings=real.bindings,
        libcuda=loaded_libcuda(),
        kernel_module=kernel_module(),
    )


def too_old(cuda_version: str | None = None) -> MempoolError:
    """The failure of a driver below our floor; before its first call not even its version is known."""
    found = f"this one is for CUDA {cuda_version}" if cuda_version else "this one is older"
    return MempoolError(
        "driver-too-old", f"mempool needs a CUDA 12.0 driver; {found}", hint="update the NVIDIA driver to R525 or later"
    )


def stub() -> MempoolError:
    """The failure of a libcuda without the functions that every driver has: the toolkit's, which is there to link with.

    Measured with the stub of CUDA 13.0: it hands out no function at all, so no call gets as far as STUB_LIBRARY (34).
    """
    return MempoolError("no-driver", "the libcuda that was loaded has no functions", hint=STUB_HINT)


def loaded_libcuda() -> Libcuda | None:
    """The libcuda that this process has loaded, None before its first driver call."""
    try:
        mapped = _MAPPED.search(_MAPS.read_text("utf-8", "surrogateescape"))
    except OSError:
        return None
    if mapped is None:
        return None
    path = Path(mapped[1]).resolve()
    version = _FILE_VERSION.fullmatch(path.name)
    return Libcuda(utf8(str(path)), version[1] if version else None)


def kernel_module() -> KernelModule | None:
    """The NVIDIA kernel module that is loaded; None without one, and in WSL, where Windows has the driver."""
    try:
        return read_module(_MODULE.read_text("utf-8", "replace"))
    except OSError:
        return None


def read_module(text: str) -> KernelModule | None:
    """The kernel module that /proc/driver/nvidia/version tells of."""
    version = _MODULE_VERSION.search(text)
    if version is None:
        return None
    return KernelModule(version[1], "open" if "Open Kernel Module" in text else "proprietary")
