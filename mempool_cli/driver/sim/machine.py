"""A simulated machine, and one process on it: the driver port, call by call."""

from __future__ import annotations

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import device_location
from mempool_cli.driver.sim.calls import Named
from mempool_cli.driver.sim.kernels import Kernels
from mempool_cli.driver.sim.profile import Failure, Profile


class Machine:
    """The cards and what is wrong with them, shared by all processes on the machine."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._calls = [0] * len(profile.failures)

    def process(self, visible: str | None = None) -> Process:
        """A new process; `visible` is its CUDA_VISIBLE_DEVICES."""
        return Process(self, visible)

    def scripted_failure(self, call: str, named: Named) -> int:
        """The code that the first due `[[failure]]` of the profile gives this call, or SUCCESS. All count the call."""
        codes: list[int] = []
        for index, failure in enumerate(self.profile.failures):
            if failure.call == call and _concerns(failure, named):
                self._calls[index] += 1
                if _due(failure, self._calls[index]):
                    codes.append(failure.code)
        return codes[0] if codes else Code.CUDA_SUCCESS


def _concerns(failure: Failure, named: Named) -> bool:
    return failure.device is None or failure.device in named or device_location(failure.device) in named


def _due(failure: Failure, count: int) -> bool:
    return count > failure.after and (not failure.times or count <= failure.after + failure.times)


class Process(Kernels):
    """One process that uses the driver: implements the driver port. Each of its bases adds the calls of a subject."""

    kind = "sim"
