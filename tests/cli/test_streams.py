"""Output that cannot be written, or that nobody reads: a status and at most one line, never a traceback."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .processes import COMMAND, SECONDS, shell

FULL = "error: could not write the result: No space left on device [output]\n"
FULL_HELP = "error: could not write: No space left on device [output]\n"
MUCH = "128"  # devices whose matrix is more than a pipe holds


@pytest.mark.parametrize("arguments", [["probe", "--matrix"], ["probe", "--format", "json"]], ids=["table", "json"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_in_the_middle(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], unbuffered: str
) -> None:
    # Unbuffered, Python's text streams take a partial write for a whole one.
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    words = " ".join(["mempool", "--sim", MUCH, *arguments])
    status, out, err = shell(f"set -o pipefail; {words} | head -c 10", tmp_path)
    assert (status, len(out), err) == (141, 10, "")


@pytest.mark.parametrize(
    "arguments",
    [["--sim", "2", "devices"], ["--sim", "2", "--format", "json", "devices"], ["--help"], ["--version"]],
    ids=" ".join,
)
def test_a_reader_that_left_before(runtime: Path, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([*COMMAND, *arguments], stdout=writer, stderr=subprocess.PIPE, timeout=SECONDS)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--sim 4 probe --matrix", FULL),
        ("--sim 4 probe --format json", FULL),
        ("--format json nonsense", FULL),
        ("--help", FULL_HELP),
        ("grant --help", FULL_HELP),
        ("--version", FULL_HELP),
    ],
)
def test_a_full_disk(runtime: Path, tmp_path: Path, arguments: str, error: str) -> None:
    assert shell(f"mempool {arguments} > /dev/full", tmp_path) == (74, "", error)


def test_a_change_that_cannot_be_told(runtime: Path, tmp_path: Path) -> None:
    done = shell("mempool --sim 2 create 0 > /dev/full; echo $?; mempool --sim 2 session stop", tmp_path)
    assert done == (
        0,
        "74\nsimulated session default (pid PID) stopped; destroyed its pools: pool-1\n",
        "started simulated session default (pid PID)\n"
        f"{FULL}  try: the change itself was made: look with `mempool list`\n",
    )


@pytest.mark.parametrize(
    ("arguments", "status"),
    [("nonsense", 2), ("", 2), ("--sim 2 --trace devices", 0), ("--sim 1 revoke 0 --from 1", 5)],
)
@pytest.mark.parametrize("place", ["/dev/full", "&-"])
def test_stderr_that_takes_nothing_changes_no_status(
    runtime: Path, tmp_path: Path, arguments: str, status: int, place: str
) -> None:
    done = shell(f"mempool {arguments} 2> {place}" if place == "/dev/full" else f"mempool {arguments} 2>&-", tmp_path)
    assert (done.status, done.err) == (status, "")


@pytest.mark.parametrize("arguments", ["--sim 2 devices", "--help", "--version"])
def test_closed_stdout(runtime: Path, tmp_path: Path, arguments: str) -> None:
    status, out, err = shell(f"mempool {arguments} >&-", tmp_path)
    assert (status, out) == (74, "")
    assert err.startswith("error: could not write")
    assert err.endswith(": Bad file descriptor [output]\n")
    assert err.count("\n") == 1


def test_a_session_starts_and_serves_with_every_stream_closed(runtime: Path, tmp_path: Path) -> None:
    script = """
    mempool --sim 2 create 0 --name kept <&- >&- 2>&-; echo $?
    mempool --sim 2 list | grep -o kept
    mempool --sim 2 session stop <&- 2>&-
    """
    assert shell(script, tmp_path) == (
        0,
        "74\nkept\nsimulated session default (pid PID) stopped; destroyed its pools: kept\n",
        "",
    )
