"""The contract on the simulator."""

from __future__ import annotations

import pytest

from mempool_cli.driver.port import CaptureMode, Driver
from mempool_cli.driver.sim.machine import Machine, Process
from mempool_cli.driver.sim.profile import parse_spec

import recycling
from contract import CaptureHandle, DriverContract, PeerContract, World


class SimCapture:
    def __init__(self, process: Process, mode: CaptureMode) -> None:
        self._process = process
        process.capture.begin(1, mode)

    def end(self) -> bool:
        return self._process.capture.end(1)


class SimWorld:
    def __init__(self, spec: str) -> None:
        profile = parse_spec(spec)
        self.process = Machine(profile).process()
        self.process.init()
        self.driver: Driver = self.process
        self.devices = len(profile.devices)
        self.memory = profile.devices[0].memory

    def allocate(self, pool: int, size: int) -> int:
        return self.process.mem_alloc_from_pool_async(pool, size)

    def free(self, pointer: int) -> None:
        self.process.mem_free_async(pointer)

    def begin_capture(self, mode: CaptureMode) -> CaptureHandle:
        return SimCapture(self.process, mode)


class TestOneDevice(DriverContract):
    @pytest.fixture
    def world(self) -> World:
        return SimWorld("h200")


class TestEightDevices(DriverContract):
    @pytest.fixture
    def world(self) -> World:
        return SimWorld("dgx-h200")


class TestPeers(PeerContract):
    @pytest.fixture
    def world(self) -> World:
        return SimWorld("dgx-h200")


def test_recycling() -> None:
    seen = recycling.both(SimWorld("h200").driver)
    recycling.check(seen)
    assert seen["device"].distinct == 2
    assert seen["host"].distinct == 1
