"""SIGINT and SIGTERM at any moment of any command: it ends by the signal, or had ended, and nothing half stays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli.conftest import Mempool
from cli.processes import COMMAND, SECONDS, wait_until, with_mark
from session.hosts import files

SIM = ["--sim", "2"]
COMMANDS: dict[str, list[str]] = {
    "start": [*SIM, "session", "start"],
    "foreground": [*SIM, "session", "start", "--foreground", "--idle-timeout", "1"],
    "stop": [*SIM, "session", "stop"],
    "run": [*SIM, "session", "run", "--", "sleep", "0.2"],
    "create": [*SIM, "create", "0", "--name", "new", "--to", "1"],
    "grant": [*SIM, "grant", "0", "--to", "1"],
    "revoke": [*SIM, "revoke", "a", "--from", "1"],
    "destroy": [*SIM, "destroy", "a"],
    "probe": [*SIM, "probe", "--matrix"],
    "mistake": [*SIM, "grant", "7", "--to", "1"],
    "exec": ["exec", "--", "sleep", "0.2"],
    "repro": [*SIM, "repro", "owner-in-batch"],
    "verify": [*SIM, "verify", "--owner", "0", "--size", "8"],
    "check": [*SIM, "check", "--select", "devices", "--select", "grant"],
    "doctor": [*SIM, "doctor"],
    "snapshot": [*SIM, "snapshot", "-o", "new.json"],
    "diff": [*SIM, "diff", "old.json"],
}
LOST = re.compile(r"^Exception ignored in.*?^(KeyboardInterrupt|\S*Terminated):? *$", re.MULTILINE | re.DOTALL)
"""What Python says of an interrupt that came in the callback of a weak reference, where it is lost."""
NEEDS_A_POOL = ("stop", "revoke", "destroy")


def catches_signals(pid: int) -> bool:
    """Whether our code has taken over, or the process has ended: what comes before is the interpreter's own start."""
    try:
        caught = re.search(r"^SigCgt:\t([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except FileNotFoundError:
        return True
    return caught is None or bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def run(words: list[str], cwd: Path, mark: str, number: signal.Signals, after: float) -> tuple[int, str]:
    """Status and stderr; the signal goes to the process alone, so long after it could be interrupted."""
    environment = {**os.environ, "MEMPOOL_TEST_MARK": mark}
    with subprocess.Popen(
        [*COMMAND, *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not catches_signals(process.pid):
            time.sleep(0.001)
        time.sleep(after)
        process.send_signal(number)
        _, err = process.communicate(timeout=SECONDS)
    return process.returncode, err


@pytest.mark.parametrize("name", COMMANDS)
def test_at_every_stage(runtime: Path, tmp_path: Path, mempool: Mempool, much: int, name: str) -> None:
    if name == "diff":
        mempool(*SIM, "snapshot", "-o", str(tmp_path / "old.json"))
    words, mark = COMMANDS[name], os.urandom(8).hex()

    def once(number: signal.Signals, after: float) -> tuple[int, str]:
        if name in NEEDS_A_POOL:
            assert mempool(*SIM, "create", "0", "--name", "a", "--to", "1").status == 0
        ended = run(words, tmp_path, mark, number, after)
        check_left(mempool, tmp_path, name)
        assert mempool(*SIM, "session", "stop").status in (0, 5)
        wait_until(lambda: not with_mark(mark))  # a session says that it has stopped a moment before it is gone
        assert files(runtime) == []
        assert {path.name for path in tmp_path.iterdir()} <= {"old.json", "new.json"}
        return ended

    own = 2 if name == "mistake" else 0
    interrupted = 0
    for step in range(2 if much == 1 else 50):
        number, after = (signal.SIGTERM, signal.SIGINT)[step % 2], (0.06 if much == 1 else 0.01) * step
        ended, err = once(number, after)
        assert ended in (own, 128 + number, -number), (number, after, err)
        interrupted += ended != own
        said = LOST.sub("", err)
        assert "Traceback" not in said
        assert "internal" not in said
    assert interrupted


def check_left(mempool: Mempool, directory: Path, name: str) -> None:
    """What the command was about is done or not done."""
    done = mempool(*SIM, "probe")
    assert done.status == 0
    pools = [line for line in done.out.splitlines() if "created" in line]
    assert len(pools) <= 1
    if name == "create":
        assert pools in ([], ["new        created          0   owner 0; RW 1"])
    new = directory / "new.json"
    if new.exists():
        assert mempool(*SIM, "diff", str(new)).status == 0
        new.unlink()
