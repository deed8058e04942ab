from __future__ import annotations

import importlib
from typing import cast

import pytest
from cli.conftest import mempool as mempool
from cli.conftest import mempool_process as mempool_process
from cli.conftest import this_package as this_package
from standin.conftest import on_machine as on_machine
from standin.conftest import standin as standin
from verify.here import Heard

from mempool_cli.child import Outcome, Reports


def run_here(trial: str, payload: bytes, *, limit: float) -> Outcome:
    """As child.run_trial, in this process: nothing may crash or hang."""
    module, _, name = trial.partition(":")
    heard = Heard()
    result: bytes = getattr(importlib.import_module(module), name)(payload, cast(Reports, heard))
    return Outcome(ended="returned", result=result, status=0, parts=tuple(heard.parts))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is asked quickly: by no process of its own."""
    for module in ("check.run", "repro.run", "survey"):
        monkeypatch.setattr(f"mempool_cli.{module}.run_trial", run_here)
