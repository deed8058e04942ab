"""Which driver answers: the real one, or a simulated machine. Nothing here falls back from one to the other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import msgspec

from mempool_cli.driver.codes import Code
from mempool_cli.driver.identity import STUB_HINT
from mempool_cli.driver.port import Driver
from mempool_cli.errors import DriverError, DriverWords, MempoolError

if TYPE_CHECKING:
    from mempool_cli.driver.sim.profile import Profile

HARDWARE = "cuda"

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


class DriverSource:
    """Where to get a driver from. `sim` is the SPEC as typed, None for hardware."""

    def __init__(self, sim: str | None, profile: Profile | None) -> None:
        self.sim = sim
        self._profile = profile

    @property
    def digest(self) -> str:
        """Equal for two sources exactly when they are the same machine: by content, or both hardware."""
        return self._profile.digest if self._profile else HARDWARE

    def open(self) -> Driver:
        """A driver in which `initialize` has not run. No driver call; MempoolError when there is none to load."""
        if self._profile is None:
            from mempool_cli.driver.cuda import CudaDriver

            return cast(Driver, CudaDriver())
        from mempool_cli.driver.guard import GuardedDriver

        return cast(Driver, GuardedDriver(self.open_unguarded()))

    def open_unguarded(self) -> Driver:
        """As `open`, without the guard: for a trial that uses dead handles on purpose, in a process of its own."""
        if self._profile is None:
            return self.open()
        from mempool_cli.driver.sim.machine import Machine

        return cast(Driver, Machine(self._profile).process(os.environ.get(_VISIBLE)))

    def encode(self) -> bytes:
        """One line of JSON from which `decode` makes the same source, wherever the files are then."""
        return msgspec.json.encode({"sim": self.sim, "profile": self._profile})

    @staticmethod
    def decode(data: bytes) -> DriverSource:
        """The source that `encode` described."""
        from mempool_cli.driver.sim.profile import Profile

        fields = msgspec.json.decode(data)
        profile = fields["profile"]
        return DriverSource(fields["sim"], msgspec.convert(profile, Profile) if profile else None)


def driver_source(sim: str | None) -> DriverSource:
    """The source for `--sim SPEC`, or for hardware. MempoolError when SPEC names no machine."""
    if sim is None:
        return DriverSource(None, None)
    from mempool_cli.driver.sim.profile import parse_spec

    return DriverSource(sim, parse_spec(sim))


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
