"""What every call of a simulated process does first, and how it fails."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from mempool_cli.driver.codes import Code, code_name
from mempool_cli.driver.port import Location, driver_call
from mempool_cli.driver.sim.capture import CaptureState
from mempool_cli.errors import DriverError

if TYPE_CHECKING:
    from mempool_cli.driver.sim.machine import Machine

Named = tuple[int | Location | None, ...]
"""The devices that a call names, by their ordinals or as places."""


class SimulatedCrash(BaseException):
    """The real driver would kill the process with SIGSEGV here: a handle that never was one."""


class Calls:
    """A process on a machine, its captures, and whether its cuInit has succeeded."""

    def __init__(self, machine: Machine, visible: str | None) -> None:
        self.machine = machine
        self.capture = CaptureState()
        self._visible = visible
        self._pid = os.getpid()
        self._initialized = False

    def _enter(self, method: str, *named: int | Location | None) -> None:
        if os.getpid() != self._pid:
            self._fail(method, Code.CUDA_ERROR_NOT_INITIALIZED)
        if not self._initialized and method not in ("init", "driver_get_version"):
            self._fail(method, Code.CUDA_ERROR_NOT_INITIALIZED)
        if self.machine.profile.failures:
            self._check(method, self.machine.scripted_failure(driver_call(method), named))

    def _fail(self, method: str, code: int) -> NoReturn:
        raise DriverError(driver_call(method), code_name(code), code)

    def _check(self, method: str, code: int) -> None:
        if code != Code.CUDA_SUCCESS:
            self._fail(method, code)
