"""The contract on the simulator again, but through NVIDIA's bindings and a C library: nothing is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import OnMachine
from bindings_world import bindings_world
from contract import DriverContract, PeerContract, World

pytestmark = pytest.mark.standin


def world_on(on_machine: OnMachine, spec: str) -> Iterator[World]:
    on_machine(spec)
    world = bindings_world()
    yield world
    world.close()


class TestOneDevice(DriverContract):
    @pytest.fixture
    def world(self, on_machine: OnMachine) -> Iterator[World]:
        yield from world_on(on_machine, "h200")


class TestPeers(PeerContract):
    @pytest.fixture
    def world(self, on_machine: OnMachine) -> Iterator[World]:
        yield from world_on(on_machine, "dgx-h200")
