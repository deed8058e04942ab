"""How much the tests of endurance do: a little in every run of the tests, a lot in `make soak`."""

from __future__ import annotations

import pytest
from cli.conftest import mempool, mempool_process, this_package
from hypothesis import HealthCheck, settings
from session.conftest import place

__all__ = ["mempool", "mempool_process", "place", "this_package"]

SOAK = "soak"

# No database, and outside of a soak no chance: every run tries the same. Their number bounds the time, not a clock.
_COMMON = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile(SOAK, _COMMON, print_blob=True)
settings.register_profile("tests", _COMMON, derandomize=True)
if settings.get_current_profile_name() != SOAK:
    settings.load_profile("tests")


@pytest.fixture
def much() -> int:
    """How many times more than in a run of all tests: 1, and in `make soak` 25."""
    return 25 if settings.get_current_profile_name() == SOAK else 1
