"""Names that a terminal cannot show, and that mean something elsewhere: readable, never a crash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Mempool, MempoolProcess

NAME = "NVIDIA [bold]é :ab: X\u202e\\n"
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SHOWN = {
    "utf-8": "NVIDIA [bold]é :ab: X\\u202e\\n  0000:ab:00.0",
    "ascii": "NVIDIA [bold]\\xe9 :ab: X\\u202e\\n  0000:ab:00.0",
}


@pytest.fixture
def profile(tmp_path: Path) -> str:
    file = tmp_path / "odd.toml"
    file.write_text(f"[[device]]\nname = '{NAME}'\npci_bus_id = '0000:ab:00.0'\n", encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("environment", "encoding", "shown"),
    [
        ({"PYTHONIOENCODING": "utf-8"}, "utf-8", SHOWN["utf-8"]),
        ({"PYTHONIOENCODING": "ascii"}, "ascii", SHOWN["ascii"]),
        ({"PYTHONIOENCODING": "cp1252"}, "cp1252", SHOWN["utf-8"]),
        ({"PYTHONIOENCODING": "cp437"}, "cp437", SHOWN["utf-8"]),
        (C_LOCALE, "ascii", SHOWN["ascii"]),
    ],
    ids=["utf-8", "ascii", "cp1252", "cp437", "C"],
)
def test_a_card_with_an_odd_name(
    mempool_process: MempoolProcess, profile: str, environment: dict[str, str], encoding: str, shown: str
) -> None:
    done = mempool_process("--sim", profile, "devices", env={**os.environ, **environment}, encoding=encoding)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[2].startswith(f"0       {shown}  GPU-")


@pytest.mark.parametrize("command", ["check", "doctor", "snapshot", "verify", "repro"])
def test_a_machine_file_that_no_other_process_can_be_told_of(mempool: Mempool, tmp_path: Path, command: str) -> None:
    profile = tmp_path / os.fsdecode(b"\xff.toml")
    profile.write_text("[[device]]\n")
    assert mempool("--sim", str(profile), command) == (
        2,
        "",
        f"error: --sim: the name of the file is no UTF-8: '{tmp_path}/\\udcff.toml' [usage]\n"
        "  try: give the file another name\n",
    )


def test_an_error_with_a_word_that_the_terminal_cannot_show(mempool_process: MempoolProcess) -> None:
    done = mempool_process("étrange", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done == (2, "", "error: No such command '\\xe9trange'. [usage]\n  try: see `mempool --help`\n")


def test_a_path_in_a_locale_that_cannot_spell_it(mempool_process: MempoolProcess, tmp_path: Path) -> None:
    profile = tmp_path / os.fsdecode(b"\xe9\xff.toml")
    profile.write_text("[[device]]\n")
    done = mempool_process("--sim", str(profile), "devices", env={**os.environ, **C_LOCALE})
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[0] == f"SIMULATED machine {tmp_path}/\\xe9\\xff.toml: no hardware was asked"
