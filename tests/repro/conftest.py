from __future__ import annotations

import pytest
from cli.conftest import mempool as mempool
from cli.conftest import this_package as this_package
from standin.conftest import standin as standin

from .trials_helper import run_here


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are quick: no process of their own."""
    for module in ("repro.run", "survey"):
        monkeypatch.setattr(f"mempool_cli.{module}.run_trial", run_here)
