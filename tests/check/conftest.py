from __future__ import annotations

import pytest
from cli.conftest import mempool as mempool
from cli.conftest import mempool_process as mempool_process
from cli.conftest import this_package as this_package
from repro.trials_helper import run_here
from standin.conftest import on_machine as on_machine
from standin.conftest import standin as standin


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is asked quickly: by no process of its own."""
    for module in ("check.run", "repro.run", "survey"):
        monkeypatch.setattr(f"mempool_cli.{module}.run_trial", run_here)
