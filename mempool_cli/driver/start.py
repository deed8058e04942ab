"""cuInit, and what this machine lacks when the driver does not start."""

from __future__ import annotations

import os

from mempool_cli.driver.codes import Code
from mempool_cli.driver.identity import STUB_HINT
from mempool_cli.driver.port import Driver
from mempool_cli.errors import DriverError, DriverWords, MempoolError

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_MPS_CODES = range(Code.CUDA_ERROR_MPS_CONNECTION_FAILED, Code.CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED + 1)
_MPS_HINT = "an MPS server does not take this process: see its log (/var/log/nvidia-mps), or its limit of clients"
_INIT_HINTS: dict[int, str] = {
    Code.CUDA_ERROR_OUT_OF_MEMORY: "the host or a card has no memory left; see nvidia-smi, and the limits of the"
    " container",
    Code.CUDA_ERROR_NOT_INITIALIZED: "the process was forked from one that had started CUDA, or is about to end; start"
    " it anew",
    Code.CUDA_ERROR_STUB_LIBRARY: STUB_HINT,
    Code.CUDA_ERROR_DEVICE_UNAVAILABLE: "a card is busy or unusable: another process has it for itself (compute mode"
    " exclusive), or it needs a reset; see nvidia-smi",
    Code.CUDA_ERROR_ECC_UNCORRECTABLE: "a card has an uncorrectable memory error; see `nvidia-smi -q -d ECC`, reset it",
    Code.CUDA_ERROR_OPERATING_SYSTEM: "the driver could not use its device files: check that /dev/nvidia* and"
    " /dev/nvidia-uvm are there and may be read and written, and the limits of the container",
    Code.CUDA_ERROR_SYSTEM_NOT_READY: "the system is not ready: on NVSwitch machines start nvidia-fabricmanager; with"
    " confidential computing set the GPUs ready (`nvidia-smi conf-compute -srs 1`)",
    Code.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: "libcuda and the kernel module have different versions; reload the module"
    " or reboot after a driver update",
    Code.CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: "the forward-compatibility libcuda (cuda-compat) does not support"
    " this card; remove it from the library path",
    **dict.fromkeys(_MPS_CODES, _MPS_HINT),
    Code.CUDA_ERROR_UNKNOWN: "the kernel module may have failed; see dmesg for NVRM lines, and check /dev/nvidia* and"
    " nvidia-uvm",
}


def initialize(driver: Driver, *, simulated: bool = False) -> None:
    """cuInit, its failure told as what this machine lacks: MempoolError `no-device` or `no-driver`. One call."""
    try:
        driver.init()
    except DriverError as error:
        raise _not_started(error.words, simulated=simulated) from error


def _not_started(words: DriverWords, *, simulated: bool) -> MempoolError:
    visible = os.environ.get(_VISIBLE)
    if words.code not in (Code.CUDA_ERROR_NO_DEVICE, Code.CUDA_ERROR_INVALID_DEVICE):
        hint = _INIT_HINTS.get(words.code, "check nvidia-smi and the kernel log")
        return MempoolError("no-driver", "the CUDA driver does not start", hint=hint, driver=words)
    seen = f"; {_VISIBLE}={visible!r}" if visible is not None else ""
    hint = "check nvidia-smi; `--sim 4` tries the tool without GPUs"
    if simulated:
        hint = "this simulated machine has no device; `--sim 4` has four"
    if visible is not None:
        hint = f"set {_VISIBLE} to ordinals or UUIDs of this machine, or unset it"
    return MempoolError("no-device", f"no usable CUDA device{seen}", hint=hint, driver=words)
