"""What a failed driver call says about an access: that it faulted, or nothing at all."""

from __future__ import annotations

from mempool_cli.driver.codes import Code
from mempool_cli.errors import DriverError

# What a kernel or a copy meets while it runs; the context is lost then.
FAULTS = frozenset(
    {
        Code.CUDA_ERROR_ECC_UNCORRECTABLE,
        220,  # CUDA_ERROR_NVLINK_UNCORRECTABLE
        226,  # CUDA_ERROR_CONTAINED
        Code.CUDA_ERROR_ILLEGAL_ADDRESS,
        702,  # CUDA_ERROR_LAUNCH_TIMEOUT
        *range(714, 720),  # from CUDA_ERROR_HARDWARE_STACK_ERROR to CUDA_ERROR_LAUNCH_FAILED
    }
)

_WANTING: dict[int, str] = {
    Code.CUDA_ERROR_OUT_OF_MEMORY: "out of memory",
    Code.CUDA_ERROR_DEVICE_UNAVAILABLE: "a device is in exclusive-process mode and taken, or in prohibited mode",
}


def wanting(error: DriverError) -> str | None:
    """What the machine lacks at the moment, for a failure that says nothing about the access; None for any other."""
    return _WANTING.get(error.words.code)
