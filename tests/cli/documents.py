"""What `--format json` prints, as a test wants it."""

from __future__ import annotations

import json
from typing import Any

from mempool_cli.exit_status import EXIT_STATUS

from .conftest import Done

KEYS = ["schema", "command", "ok", "exit", "driver", "where", "data", "warnings", "error"]


def document(done: Done) -> dict[str, Any]:
    """The one object on stdout, after a check of what is true of all of them."""
    assert done.out.count("\n") == 1
    assert done.out.isascii()
    assert done.err == ""
    found: dict[str, Any] = json.loads(done.out)
    assert list(found) == KEYS
    assert found["schema"] == "mempool/1"
    assert found["exit"] == done.status
    assert found["ok"] is (found["error"] is None) is (done.status == 0)
    if found["error"]:
        assert EXIT_STATUS[found["error"]["code"]] == done.status
    return found


def failure(done: Done) -> tuple[int, str, str, str]:
    """Exit status, command, error code and message."""
    found = document(done)
    return done.status, found["command"], found["error"]["code"], found["error"]["message"]
