"""The contract on the simulator."""

from __future__ import annotations

import pytest

from mempool_cli.driver.sim.machine import Machine
from mempool_cli.driver.sim.profile import parse_spec

import recycling
from contract import DriverContract, PeerContract, World


def sim_world(spec: str) -> World:
    profile = parse_spec(spec)
    process = Machine(profile).process()
    process.init()
    return World(process, profile.devices[0].memory)


class TestOneDevice(DriverContract):
    @pytest.fixture
    def world(self) -> World:
        return sim_world("h200")


class TestEightDevices(DriverContract):
    @pytest.fixture
    def world(self) -> World:
        return sim_world("dgx-h200")


class TestPeers(PeerContract):
    @pytest.fixture
    def world(self) -> World:
        return sim_world("dgx-h200")


def test_recycling() -> None:
    seen = recycling.both(sim_world("h200").driver)
    recycling.check(seen)
    assert seen["device"].distinct == 2
    assert seen["host"].distinct == 1
