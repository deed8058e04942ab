"""Which driver answers: the real one, or a simulated machine. Nothing here falls back from one to the other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import msgspec

from mempool_cli.driver.port import Driver
from mempool_cli.errors import DriverError, MempoolError

if TYPE_CHECKING:
    from mempool_cli.driver.sim.profile import Profile

HARDWARE = "cuda"

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_NO_DEVICE = (100, 101)
_INIT_HINTS = {
    34: "the libcuda that was loaded is the toolkit's stub; put the driver's own libcuda.so.1 first",
    802: "the system is not ready: on NVSwitch machines start nvidia-fabricmanager",
    803: "libcuda and the kernel module have different versions; reload the module or reboot after a driver update",
    804: "the forward-compatibility libcuda (cuda-compat) does not support this card; remove it from the library path",
    999: "the kernel module may have failed; see dmesg for NVRM lines, and check /dev/nvidia* and nvidia-uvm",
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
        from mempool_cli.driver.sim.machine import Machine

        process = Machine(self._profile).process(os.environ.get(_VISIBLE))
        return cast(Driver, GuardedDriver(process))

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


def initialize(driver: Driver) -> None:
    """cuInit, its failure told as what this machine lacks: MempoolError `no-device` or `no-driver`. One call."""
    try:
        driver.init()
    except DriverError as error:
        words = error.words
        visible = os.environ.get(_VISIBLE)
        if words.code in _NO_DEVICE:
            seen = f"; {_VISIBLE}={visible!r}" if visible is not None else ""
            hint = f"set {_VISIBLE} to ordinals or UUIDs of this machine, or unset it" if visible is not None else None
            raise MempoolError(
                "no-device",
                f"no usable CUDA device{seen}",
                hint=hint or "check nvidia-smi; `--sim 4` tries the tool without GPUs",
                driver=words,
            ) from error
        raise MempoolError(
            "no-driver",
            "the CUDA driver does not start",
            hint=_INIT_HINTS.get(words.code, "check nvidia-smi and the kernel log"),
            driver=words,
        ) from error
