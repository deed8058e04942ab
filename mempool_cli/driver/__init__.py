"""Which driver answers: the real one, or a simulated machine. Nothing here falls back from one to the other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import msgspec

from mempool_cli.errors import MempoolError

# The rest is loaded when a driver is opened: who only asks a session opens none.
if TYPE_CHECKING:
    from mempool_cli.driver.port import Driver
    from mempool_cli.driver.sim.profile import Profile

HARDWARE = "cuda"

_VISIBLE = "CUDA_VISIBLE_DEVICES"


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

            return cast("Driver", CudaDriver())
        from mempool_cli.driver.guard import GuardedDriver

        return cast("Driver", GuardedDriver(self.open_unguarded()))

    def open_unguarded(self) -> Driver:
        """As `open`, without the guard: for a trial that uses dead handles on purpose, in a process of its own."""
        if self._profile is None:
            return self.open()
        from mempool_cli.driver.sim.machine import Machine

        return cast("Driver", Machine(self._profile).process(os.environ.get(_VISIBLE)))

    def encode(self) -> bytes:
        """One line of JSON from which `decode` makes the same source, wherever the files are then.

        MempoolError `usage` for a SPEC that is no text: another process could not be told what the machine is called.
        """
        try:
            return msgspec.json.encode({"sim": self.sim, "profile": self._profile})
        except UnicodeEncodeError as error:
            message = f"--sim: the name of the file is no UTF-8: {self.sim!r}"
            raise MempoolError("usage", message, hint="give the file another name") from error

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
