"""One JSON object on stdout, whatever happens, wherever `--format json` stands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Mempool, MempoolProcess
from .documents import document, failure


@pytest.mark.parametrize(
    "arguments",
    [
        ("--format", "json", "probe", "--matrix"),
        ("probe", "--matrix", "--format", "json"),
        ("probe", "--matrix", "--format=json"),
        ("--format", "table", "probe", "--format", "json"),
    ],
    ids=" ".join,
)
def test_asked_for_before_or_after_the_command(mempool: Mempool, arguments: tuple[str, ...]) -> None:
    found = document(mempool("--sim", "2", *arguments))
    assert found["command"] == "probe"
    assert [[cell["access"] for cell in row["cells"]] for row in found["data"]["rows"]] == [
        ["rw", "none"],
        ["none", "rw"],
    ]


def test_asked_for_by_the_environment(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPOOL_FORMAT", "json")
    assert document(mempool("--sim", "1", "devices"))["driver"]["sim"] == "1"
    assert mempool("--sim", "1", "devices", "--format", "table").out.startswith("SIMULATED machine 1:")


def test_a_name_of_300_characters_in_a_pipe(mempool_process: MempoolProcess, tmp_path: Path) -> None:
    name = "NVIDIA é" + "x" * 292
    profile = tmp_path / "long.toml"
    profile.write_text(f'[[device]]\nname = "{name}"\n', encoding="utf-8")
    found = document(mempool_process("--sim", str(profile), "devices", "--format", "json"))
    assert found["data"]["devices"][0]["name"] == name
    shown = mempool_process("--sim", str(profile), "devices").out.splitlines()
    assert name in shown[2]


USAGE = [
    (("nonsense",), "", "No such command 'nonsense'."),
    (("--nonsense",), "", "No such option"),
    ((), "", "Missing command."),
    (("session",), "session", "Missing command."),
    (("session", "nonsense"), "session", "No such command 'nonsense'."),
    (("show",), "show", "Missing argument 'POOL'."),
    (("grant", "0"), "grant", "Missing option '--to'."),
    (("grant", "0", "--to"), "grant", "--to needs at least one device and got nothing"),
    (("session", "start", "--idle-timeout", "x"), "session start", "Invalid value for '--idle-timeout': 'x' is not a"),
    (("devices", "--session", "a", "--no-session"), "devices", "--session and --no-session exclude each other"),
]


@pytest.mark.parametrize(("arguments", "command", "message"), USAGE, ids=[" ".join(case[0]) for case in USAGE])
def test_usage_errors(
    mempool: Mempool, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], command: str, message: str
) -> None:
    monkeypatch.setenv("MEMPOOL_FORMAT", "json")
    status, where, code, text = failure(mempool(*arguments))
    assert (status, where, code) == (2, command, "usage")
    assert text.startswith(message)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--format", "json", "nonsense"),
        ("nonsense", "--format", "json"),
        ("nonsense", "--format=json"),
        ("show", "--nonsense", "--format", "json"),
        ("--format", "table", "show", "--format", "json", "--nonsense"),
    ],
    ids=" ".join,
)
def test_usage_errors_before_and_after_which_json_is_asked_for(mempool: Mempool, arguments: tuple[str, ...]) -> None:
    assert failure(mempool(*arguments))[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--format", "json", "show", "--format", "table", "--nonsense"),
        ("show", "--nonsense", "--", "--format", "json"),
        ("--format", "yaml", "devices"),
    ],
    ids=" ".join,
)
def test_usage_errors_that_stay_text(mempool: Mempool, arguments: tuple[str, ...]) -> None:
    done = mempool(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("error: ")


NOT_UTF8 = os.fsdecode(b"\xff0")


@pytest.mark.parametrize(
    "arguments",
    [
        (NOT_UTF8,),
        ("--sim", "2", "show", NOT_UTF8),
        ("--sim", "2", "grant", NOT_UTF8, "--to", "1"),
        ("--sim", "2", "grant", "0", "--to", NOT_UTF8),
        ("--sim", "2", "create", NOT_UTF8),
        ("--sim", "2", "create", "0", "--name", NOT_UTF8),
        ("--sim", "2", "--session", NOT_UTF8, "list"),
        ("--sim", NOT_UTF8, "list"),
        ("--sim", f"./{NOT_UTF8}.toml", "list"),
        ("--format", NOT_UTF8, "list"),
    ],
    ids=lambda words: " ".join(words).encode("ascii", "replace").decode(),
)
def test_a_word_that_is_no_utf8(mempool: Mempool, arguments: tuple[str, ...]) -> None:
    assert failure(mempool(*arguments, "--format", "json"))[0] == 2
    # Refused before a session was started for it.
    assert mempool("--sim", "2", "session", "list").out == "no session runs\n"


def test_an_argument_that_is_no_utf8(mempool_process: MempoolProcess) -> None:
    done = mempool_process("--sim", "2", "grant", NOT_UTF8, "--to", "1", "--format", "json")
    assert failure(done) == (2, "grant", "usage", "a word of the command line is no UTF-8: '\\udcff0'")
