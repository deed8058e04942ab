from __future__ import annotations

from pathlib import Path

import pytest

from mempool_cli.session.directory import Place


@pytest.fixture
def place(runtime: Path) -> Place:
    """Where the simulated session `default` is."""
    return Place(runtime, True, "default")
