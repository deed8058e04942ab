"""The global options: before and after the command, where the later wins, and from the environment."""

from __future__ import annotations

import pytest

from mempool_cli import __version__

from .conftest import Mempool
from .documents import document

SIM_1 = "SIMULATED machine 1: no hardware was asked\n"
SIM_2 = "SIMULATED machine 2: no hardware was asked\n"


def label(mempool: Mempool, *arguments: str) -> str:
    return mempool(*arguments).out.splitlines(keepends=True)[0]


def test_sim(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert label(mempool, "--sim", "2", "devices") == SIM_2
    assert label(mempool, "devices", "--sim", "2") == SIM_2
    assert label(mempool, "--sim", "1", "devices", "--sim", "2") == SIM_2
    assert label(mempool, "--sim", "1", "--sim=2", "devices") == SIM_2
    monkeypatch.setenv("MEMPOOL_SIM", "1")
    assert label(mempool, "devices") == SIM_1
    assert label(mempool, "devices", "--sim", "2") == SIM_2


def test_sim_between_a_group_and_its_command(mempool: Mempool) -> None:
    assert mempool("session", "--sim", "2", "list") == (0, "no session runs\n", "")


def test_session(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*arguments: str) -> str:
        done = mempool("--sim", "1", *arguments)
        assert (done.status, done.out) == (5, "")
        return done.err.splitlines()[0]

    assert asked("--session", "one", "list") == "error: no simulated session 'one' runs [no-session]"
    assert asked("list", "--session", "two") == "error: no simulated session 'two' runs [no-session]"
    assert asked("--session", "one", "list", "--session", "two").startswith("error: no simulated session 'two'")
    monkeypatch.setenv("MEMPOOL_SESSION", "three")
    assert asked("list") == "error: no simulated session 'three' runs [no-session]"
    assert asked("list", "--session", "two").startswith("error: no simulated session 'two'")


def where(mempool: Mempool, *arguments: str) -> tuple[str, str | None]:
    found = document(mempool("--sim", "1", "--format", "json", *arguments))["where"]
    return found["kind"], found["name"]


def test_session_and_no_session(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = ("local", None), ("session", "default")
    assert mempool("--sim", "1", "session", "start").status == 0
    assert where(mempool, "list") == there
    assert where(mempool, "--no-session", "list") == here
    assert where(mempool, "list", "--no-session") == here
    assert where(mempool, "--no-session", "list", "--session", "default") == there
    assert where(mempool, "--session", "default", "list", "--no-session") == here
    monkeypatch.setenv("MEMPOOL_NO_SESSION", "1")
    assert where(mempool, "list") == here
    assert where(mempool, "list", "--session", "default") == there
    monkeypatch.setenv("MEMPOOL_SESSION", "absent")
    assert where(mempool, "list", "--no-session") == here
    assert where(mempool, "list") == here


@pytest.mark.parametrize("off", ["0", "false", "no", "", "FALSE", "No", " 0 "])
def test_a_boolean_variable_that_is_off(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    monkeypatch.setenv("MEMPOOL_TRACE", off)
    assert mempool("--sim", "1", "devices").err == ""
    monkeypatch.setenv("MEMPOOL_NO_SESSION", off)
    done = mempool("--sim", "1", "revoke", "0", "--from", "1")
    assert done.err.startswith("error: no simulated session 'default' runs")


@pytest.mark.parametrize("on", ["1", "true", "yes", "on"])
def test_a_boolean_variable_that_is_on(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, on: str) -> None:
    monkeypatch.setenv("MEMPOOL_TRACE", on)
    assert mempool("--sim", "1", "devices").err.startswith("cuDriverGetVersion() = 13000 <")


def test_trace(mempool: Mempool) -> None:
    for arguments in (("--trace", "devices"), ("devices", "--trace")):
        done = mempool("--sim", "1", *arguments)
        assert done.err.startswith("cuDriverGetVersion() = 13000 <")
        assert "cu" not in done.out


def test_format(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert label(mempool, "--sim", "1", "--format", "json", "devices", "--format", "table") == SIM_1
    monkeypatch.setenv("MEMPOOL_FORMAT", "xml")
    assert mempool("--sim", "1", "devices") == (
        2,
        "",
        "error: MEMPOOL_FORMAT: 'xml' is not one of 'table', 'json'. [usage]\n  try: see `mempool devices --help`\n",
    )
    assert label(mempool, "--sim", "1", "devices", "--format", "table") == SIM_1


def test_color(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    def coloured(*arguments: str) -> bool:
        return "\x1b[" in mempool("--sim", "1", *arguments).out

    assert coloured("--color", "always", "devices")
    assert coloured("--color", "never", "devices", "--color", "always")
    assert not coloured("--color", "always", "devices", "--color", "auto")
    monkeypatch.setenv("MEMPOOL_COLOR", "always")
    assert coloured("devices")
    assert not coloured("devices", "--color", "never")
    # An error that no command answered for is coloured in the same way.
    assert mempool("nonsense").err.startswith("\x1b[1;31merror:\x1b[0m No such command")
    assert mempool("nonsense", "--color", "never").err.startswith("error: ")


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_a_timeout_that_is_none(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    for arguments in (("--timeout", seconds, "devices"), ("devices", "--timeout", seconds)):
        done = mempool("--sim", "1", *arguments)
        assert done.status == 2
        assert done.err.startswith("error: Invalid value for '--timeout': ")
    monkeypatch.setenv("MEMPOOL_TIMEOUT", seconds)
    assert mempool("--sim", "1", "devices").err.startswith("error: MEMPOOL_TIMEOUT: ")
    assert mempool("--sim", "1", "--timeout", "5", "devices").status == 0


def test_session_beside_no_session(mempool: Mempool) -> None:
    for arguments in (("--session", "a", "--no-session", "list"), ("list", "--no-session", "--session", "a")):
        assert mempool("--sim", "1", *arguments) == (
            2,
            "",
            "error: --session and --no-session exclude each other [usage]\n  try: see `mempool list --help`\n",
        )


@pytest.mark.parametrize("variable", ["MEMPOOL_VERSION", "MEMPOOL_HELP", "MEMPOOL_MATRIX", "MEMPOOL_DEVICES_SIM"])
def test_variables_that_mean_nothing(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    done = mempool("--sim", "1", "probe")
    assert done.status == 0
    assert done.out.splitlines()[1] == "pool       kind             on  access"


@pytest.mark.parametrize("arguments", ["--version", "devices --version", "session --version", "session stop --version"])
def test_version(mempool: Mempool, arguments: str) -> None:
    assert mempool(*arguments.split()) == (0, f"mempool {__version__}\n", "")


def test_nothing(mempool: Mempool) -> None:
    done = mempool()
    assert (done.status, done.out) == (2, "")
    assert done.err == mempool("--help").out


def test_an_unknown_command(mempool: Mempool) -> None:
    assert mempool("probes") == (
        2,
        "",
        "error: No such command 'probes'. Did you mean 'probe'? [usage]\n  try: see `mempool --help`\n",
    )


def test_an_unknown_option(mempool: Mempool) -> None:
    status, out, err = mempool("probe", "--matrx")
    assert (status, out) == (2, "")
    assert err.startswith("error: No such option")
    assert "--matrix" in err
    assert err.endswith(" [usage]\n  try: see `mempool probe --help`\n")
