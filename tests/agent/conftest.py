from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from standin.conftest import standin as standin
from standin.stand_in import StandIn, machine_environment

from .worlds import World


@pytest.fixture
def world(standin: StandIn, runtime: Path) -> Iterator[World]:
    """Four devices that reach each other, and an empty runtime directory."""
    with standin.machine("4") as socket:
        yield World(runtime, machine_environment(standin.library.parent, socket), standin)
