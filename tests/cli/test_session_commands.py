"""What a user sees of sessions: they start by themselves, hold pools, end without a trace, and their death is told."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mempool_cli import __version__

from .conftest import Mempool, MempoolProcess, settled
from .machines import AFFECTED, FOUR, FRESH, HELD, SEEN, STARTED, failure, label, machine

COMMAND = [sys.executable, "-P", "-m", "mempool_cli"]
SECONDS = 30
NO_SESSION = (
    "error: no session or program 'default' runs [no-session]\n"
    "  try: `mempool session list` shows those that do; `mempool session start` starts one, `mempool exec` a program\n"
)
NO_SIMULATED_SESSION = (
    "error: no simulated session 'default' runs [no-session]\n"
    "  try: `mempool --sim 4 session list` shows those that do; `mempool --sim 4 session start` starts one\n"
)


def pid_of(mempool: Mempool, *options: str) -> int:
    """The process of the simulated session."""
    document = json.loads(mempool("--sim", "4", *options, "--format", "json", "session", "status").out)
    return int(document["data"]["session"]["pid"])


def wait(pidfd: int) -> None:
    """Until that process has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(SECONDS * 1000)
    os.close(pidfd)


@pytest.mark.parametrize("seconds", ["-1", "31536001", "99999999999999"])
def test_an_idle_time_that_is_none(mempool: Mempool, runtime: Path, seconds: str) -> None:
    assert mempool("--sim", "4", "session", "start", "--idle-timeout", seconds) == (
        2,
        "",
        f"error: Invalid value for '--idle-timeout': {seconds} is not in the range 0<=x<=31536000. [usage]\n"
        "  try: see `mempool session start --help`\n",
    )
    assert list(runtime.iterdir()) == []


def test_start_status_list_stop(mempool: Mempool, runtime: Path) -> None:
    facts = (
        f"  version  {__version__}\n  driver   SIMULATED machine 4\n  started  TIME\n"
        "  ends     TIME unless used, after 30 idle minutes, or on `mempool session stop`\n"
        "  pools    {}\n  blocks   nothing: it holds no hardware\n"
    )
    assert mempool("--sim", "4", "session", "start") == (
        0,
        "simulated session default started (pid PID)\n" + facts.format("none created"),
        "",
    )
    mempool("--sim", "4", "create", "0", "--name", "a")
    running = "simulated session default runs (pid PID)\n" + facts.format("a")
    assert mempool("--sim", "4", "session", "status") == (0, running, "")
    assert mempool("--sim", "4", "session", "start") == (0, running, "")
    head, row = mempool("--sim", "4", "session", "list").out.splitlines()
    assert head.split() == ["name", "kind", "pid", "driver", "started", "ends", "pools"]
    assert row.split()[:2] == ["default", "session"]
    assert row.split()[-1] == "a"
    pidfd = os.pidfd_open(pid_of(mempool))
    assert mempool("--sim", "4", "session", "stop") == (
        0,
        "simulated session default (pid PID) stopped; destroyed its pools: a\n",
        "",
    )
    wait(pidfd)
    assert list(runtime.iterdir()) == []
    for command in ("stop", "status"):
        assert mempool("--sim", "4", "session", command) == (5, "", NO_SIMULATED_SESSION)
    assert mempool("--sim", "4", "session", "list") == (0, "no session runs\n", "")


def test_the_first_change_starts_it_and_the_next_does_not(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "grant", "0", "--to", "1").err == STARTED
    assert mempool("--sim", "4", "grant", "0", "--to", "2").err == ""
    assert mempool("--sim", "4", "create", "1").err == ""
    assert "default:0  default,current  0   owner 0; RW 1-2; none 3\n" in mempool("--sim", "4", "probe").out


@pytest.mark.parametrize(
    "command", [["probe"], ["list"], ["devices"], ["show", "0"], ["grant", "0", "--to", "1", "--dry-run"]]
)
def test_a_question_starts_none(mempool: Mempool, runtime: Path, command: list[str]) -> None:
    done = mempool("--sim", "4", *command)
    assert (done.status, done.err) == (0, "")
    assert command == ["devices"] or done.out.endswith(FRESH)
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize("command", [["revoke", "0", "--from", "1"], ["set-current", "0"], ["destroy", "a"]])
def test_what_needs_one_says_so(mempool: Mempool, runtime: Path, command: list[str]) -> None:
    assert mempool("--sim", "4", *command) == (5, "", NO_SIMULATED_SESSION)
    assert mempool("--sim", "4", "--session", "x", *command).err == NO_SIMULATED_SESSION.replace(
        "default", "x"
    ).replace("--sim 4 session start", "--sim 4 --session x session start")
    assert list(runtime.iterdir()) == []


def test_no_session_neither_starts_one_nor_asks_one(mempool: Mempool, runtime: Path) -> None:
    statuses = {
        ("devices",): 0,
        ("create", "0"): 0,
        ("list",): 0,
        ("show", "0"): 0,
        ("grant", "0", "--to", "1"): 0,
        ("revoke", "0", "--from", "1"): 0,
        ("probe",): 0,
        ("set-current", "0"): 0,
        ("destroy", "pool-1"): 2,
    }
    alone = {command: mempool("--sim", "4", "--no-session", *command) for command in statuses}
    assert {command: done.status for command, done in alone.items()} == statuses
    assert list(runtime.iterdir()) == []
    mempool("--sim", "4", "create", "0", "--to", "1")
    mempool("--sim", "4", "grant", "0", "--to", "1")
    assert {command: mempool("--sim", "4", *command, "--no-session") for command in statuses} == alone
    assert "default:0  default,current  0   owner 0; RW 1; none 2-3\n" in mempool("--sim", "4", "probe").out


def test_the_environment_can_name_the_machine(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPOOL_SIM", "4")
    assert mempool("grant", "0", "--to", "1").out == (
        label("4") + "pool default:0: access granted to device 1 (1 cuMemPoolSetAccess call)\n"
        "access now: owner 0; RW 1; none 2-3\n" + HELD
    )
    assert "owner 0; RW 1; none 2-3" in mempool("--sim", "4", "probe", "0").out
    monkeypatch.delenv("MEMPOOL_SIM")
    # A command without --sim is about hardware, whatever is simulated.
    assert mempool("session", "status") == (5, "", NO_SESSION)
    warning = "simulated session default: not on hardware; with `--sim` they are listed [simulated-sessions]"
    assert mempool("session", "list") == (0, "no session runs\n", f"warning: {warning}\n")
    assert mempool("revoke", "0", "--from", "1").err == NO_SESSION
    assert mempool("session", "stop").status == 5
    assert "owner 0; RW 1; none 2-3" in mempool("--sim", "4", "probe", "0").out


def test_two_names_are_two_sessions(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    mempool("--sim", "4", "grant", "0", "--to", "1")
    assert mempool("--sim", "4", "--session", "other", "grant", "0", "--to", "2").err == STARTED.replace(
        "default", "other"
    )
    assert "owner 0; RW 1; none 2-3" in mempool("--sim", "4", "probe", "0").out
    other = mempool("--sim", "4", "probe", "0", "--session", "other")
    assert other.out.endswith("owner 0; RW 2; none 1, 3\n\n" + SEEN.replace("default", "other"))
    monkeypatch.setenv("MEMPOOL_SESSION", "other")
    assert mempool("--sim", "4", "session", "stop").out == "simulated session other (pid PID) stopped\n"


def test_another_machine_under_the_same_name_is_refused(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "0")
    done = mempool("--sim", "2", "create", "0")
    assert (done.status, done.out) == (5, "")
    assert done.err.splitlines()[-2].endswith("[other-driver]")
    assert "pool-2" not in mempool("--sim", "4", "list").out
    # The same machine by another SPEC is the same machine.
    assert mempool("--sim", "04", "create", "0", "-q").out == "pool-2\n"


def test_a_session_of_another_machine_is_shown_and_stopped_with_a_warning(mempool: Mempool) -> None:
    mempool("--sim", "4", "session", "start")
    warning = "warning: session default simulates '4', not '8' [other-driver]\n"
    shown = mempool("--sim", "8", "session", "status")
    assert (shown.status, shown.out.splitlines()[2], shown.err) == (0, "  driver   SIMULATED machine 4", warning)
    assert mempool("--sim", "8", "session", "start").status == 5
    assert mempool("--sim", "8", "session", "stop") == (
        0,
        "simulated session default (pid PID) stopped\n",
        warning,
    )


def test_a_timeout_that_comes_too_late_is_told(mempool: Mempool) -> None:
    mempool("--sim", "4", "session", "start", "--idle-timeout", "5")
    told = mempool("--sim", "4", "session", "start", "--idle-timeout", "60")
    assert (told.status, told.err) == (
        0,
        "warning: session default runs already, with an idle timeout of 5 s; stop it first to change that"
        " [already-running]\n",
    )
    assert mempool("--sim", "4", "session", "start").err == ""


def test_numbers_of_another_environment_are_told(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    mempool("--sim", "4", "session", "start")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    message = (
        "device numbers are those of session default: CUDA_VISIBLE_DEVICES is '1,2' in session default, and '3' here"
    )
    for command in ("probe", "list", "devices"):
        assert mempool("--sim", "4", command).err == f"warning: {message} [other-environment]\n"
    warnings = json.loads(mempool("--sim", "4", "--format", "json", "probe").out)["warnings"]
    assert warnings == [{"code": "other-environment", "message": message}]


@pytest.mark.parametrize("format_", ["table", "json"])
def test_the_end_of_a_session_is_told_once(mempool: Mempool, runtime: Path, format_: str) -> None:
    def end() -> None:
        mempool("--sim", "4", "create", "0", "--name", "precious")
        pid = pid_of(mempool)
        pidfd = os.pidfd_open(pid)
        os.kill(pid, signal.SIGTERM)
        wait(pidfd)

    end()
    assert mempool("--sim", "4", "session", "list") == (0, "no session runs\n", "")
    ended = "ended TIME by SIGTERM; gone with it: pools precious, and all grants"
    asked = ("--sim", "4", "--format", format_)
    again = mempool(*asked, "session", "start")
    assert (again.status, again.err) == (0, f"simulated session default {ended}\n")
    assert ended not in again.out
    end()
    created = mempool(*asked, "create", "0")
    assert created.err.startswith(f"simulated session default {ended}\n{STARTED}")
    assert ended not in created.out
    end()
    ended = ended.replace("precious", "pool-1, precious")
    for told in (f": it {ended}", ""):
        refused = mempool(*asked, "destroy", "precious")
        assert f"no simulated session 'default' runs{told}" in refused.out + refused.err
        assert ("ended" in refused.out + refused.err) is bool(told)
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize(("command", "status"), [("nosuchcmd", 127), ("/", 126)])
def test_a_command_that_is_none_ends_as_in_a_shell(
    mempool_process: MempoolProcess, runtime: Path, command: str, status: int
) -> None:
    done = mempool_process("--sim", "4", "session", "run", "--", command)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith(f"error: {command} cannot be run: ")
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize("command", ["start", "stop", "status", "list"])
def test_a_machine_that_is_none_is_about_no_session(mempool: Mempool, command: str) -> None:
    mempool("--sim", "4", "session", "start")
    assert mempool("--sim", "garbage", "session", command).status == 2
    assert mempool("--sim", "4", "session", "status").status == 0
    assert mempool("--sim", "8", "session", "stop").status == 0


def test_a_failure_that_left_a_grant_leaves_the_session(mempool: Mempool, tmp_path: Path) -> None:
    """Device 1 has got access, and the answer for device 2 does not come."""
    spec = machine(tmp_path, FOUR, failure("cuMemPoolGetAccess", device=2, after=1, times=1))
    done = mempool("--sim", spec, "grant", "0", "--to", "1", "2")
    assert (done.status, done.out.splitlines()[-1] + "\n") == (4, HELD)
    assert "owner 0; RW 1-2; none 3" in mempool("--sim", spec, "probe", "0").out


def test_a_request_that_is_too_long_starts_none(mempool: Mempool, runtime: Path) -> None:
    done = mempool("--sim", "4", "grant", "0", "--to", *["0-4095"] * 300)
    assert (done.status, done.out) == (5, "")
    assert list(runtime.iterdir()) == []


def test_a_session_in_the_foreground_that_cannot_say_so(mempool: Mempool, runtime: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "--sim", "4", "session", "start", "--foreground"],
            stdout=full,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
        )
    assert done.returncode == 74
    assert list(runtime.iterdir()) == []
    assert mempool("--sim", "4", "probe").status == 0


def test_a_killed_session_is_told_once_with_what_was_lost(mempool: Mempool, runtime: Path) -> None:
    mempool("--sim", "4", "create", "0", "--name", "a")
    mempool("--sim", "4", "create", "1")
    pid = pid_of(mempool)
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    wait(pidfd)
    told = mempool("--sim", "4", "grant", "0", "--to", "1")
    assert (told.status, told.out) == (5, "")
    assert told.err.splitlines()[0] == (
        "error: session default (pid PID) died: no trace: killed, or out of memory;"
        " lost: its pools a, pool-1, and every grant that it made [session-died]"
    )
    again = mempool("--sim", "4", "grant", "0", "--to", "1")
    assert (again.status, again.err) == (0, STARTED)
    assert mempool("--sim", "4", "create", "0", "-q").out == "pool-1\n"
    mempool("--sim", "4", "session", "stop")
    assert [file.name for file in runtime.iterdir() if not file.name.endswith((".crash", ".log"))] == []


def test_twelve_commands_at_once_end_with_one_session(mempool: Mempool) -> None:
    clients = [
        subprocess.Popen([*COMMAND, "--sim", "4", "create", "0", "-q"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(12)
    ]
    said = [client.communicate(timeout=SECONDS) for client in clients]
    assert [client.returncode for client in clients] == [0] * 12
    assert sorted(out.decode() for out, _ in said) == sorted(f"pool-{number}\n" for number in range(1, 13))
    started = [settled(err.decode()) for _, err in said]
    assert [err for err in started if err != label("4")] == [STARTED + label("4")]
    assert len(json.loads(mempool("--sim", "4", "--format", "json", "session", "list").out)["data"]["sessions"]) == 1


def test_a_pipe_behind_the_command_that_starts_it_ends(mempool: Mempool) -> None:
    """The session must not keep the pipe open."""
    shell = f"{' '.join(COMMAND)} --sim 4 create 0 2>&1 | cat"
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, timeout=SECONDS)
    assert settled(done.stdout) == (
        STARTED + label("4") + "created pool pool-1 on device 0 (max size: driver default, release threshold: 0 B)\n"
        "access now: owner 0; none 1-3\n" + HELD
    )
    assert pid_of(mempool) > 0


def test_what_could_not_be_destroyed_at_the_end_is_a_failure(mempool: Mempool, runtime: Path, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolDestroy"))
    mempool("--sim", spec, "create", "0")
    pidfd = os.pidfd_open(pid_of(mempool))
    assert mempool("--sim", spec, "session", "stop") == (
        4,
        "simulated session default (pid PID) stopped; not destroyed: pool-1\n",
        "error: pool pool-1 could not be destroyed; it ended with the process [driver-refused]\n",
    )
    wait(pidfd)
    assert list(runtime.iterdir()) == []


def test_stop_clears_access_of_what_it_destroys(mempool: Mempool, tmp_path: Path) -> None:
    """The second change of access is that of the end, and is refused."""
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess", after=1))
    mempool("--sim", spec, "create", "0", "--name", "a", "--to", "1")
    assert mempool("--sim", spec, "session", "stop").err == (
        "warning: destroyed, but access would not clear first: a (device 1) [not-cleared]\n"
    )


def test_a_command_with_a_session_of_its_own(mempool_process: MempoolProcess, runtime: Path) -> None:
    inner = f"{' '.join(COMMAND)} create 0 -q 2>/dev/null && {' '.join(COMMAND)} destroy pool-1 && exit 7"
    done = mempool_process("--sim", "4", "session", "run", "--", "/bin/sh", "-c", inner)
    assert done.status == 7
    assert done.out.startswith("pool-1\n" + label("4") + "destroyed pool pool-1\naffects only session run-")
    assert AFFECTED.split("default")[1] in done.out
    assert list(runtime.iterdir()) == []


def test_an_end_that_nobody_asked_for_is_told_once(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "0", "--name", "precious", "--to", "1")
    pid = pid_of(mempool)
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGTERM)
    wait(pidfd)
    told = "simulated session default ended TIME by SIGTERM; gone with it: pools precious, and all grants\n"
    assert mempool("--sim", "4", "probe", "0").err == told
    assert mempool("--sim", "4", "probe", "0").err == ""
