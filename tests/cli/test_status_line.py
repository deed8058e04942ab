"""An answer that is late is announced on stderr, once, and then it comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from .conftest import settled
from .processes import COMMAND, SECONDS, stopped

WAITING = b"waiting for session default...\n"


@pytest.mark.parametrize("arguments", [("probe",), ("grant", "0", "--to", "1"), ("session", "status")], ids=" ".join)
def test_a_late_answer(session: int, arguments: tuple[str, ...]) -> None:
    command = [*COMMAND, "--sim", "2", "--format", "json", *arguments]
    with stopped(session), subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == WAITING
        os.kill(session, signal.SIGCONT)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, settled(err.decode())) == (0, "")
    assert json.loads(out)["ok"] is True
