"""Sessions start once, hold pools between commands, end without a trace, and their death is told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from mempool_cli.driver import driver_source
from mempool_cli.model import Event, PoolCreated, PoolList
from mempool_cli.requests import AnyRequest, Create, Grant, List, Probe
from mempool_cli.session import MAX_IDLE_SECONDS, boot, journal, lifecycle
from mempool_cli.session.directory import Place
from mempool_cli.session.farewell import Farewell
from mempool_cli.session.lock import Lock, held

from .hosts import (
    SECONDS,
    SIM,
    failure,
    files,
    ignore,
    kill,
    process_end,
    python,
    python_command,
    python_process,
    start,
)


def test_pools_outlive_the_command(runtime: Path) -> None:
    events: list[Event] = []
    runner = lifecycle.open_or_start("default", SIM)
    created = runner.run(Create(location="0", to=("1",)), events.append)
    assert created.exit == 0
    assert created.where is not None
    assert (created.where.kind, created.where.name) == ("session", "default")
    assert created.where.expires is not None
    assert events == [Event("status", f"started simulated session default (pid {created.where.pid})")]

    again = lifecycle.find("default", SIM)
    assert again is not None
    listed = again.run(List(), ignore).result
    assert isinstance(listed, PoolList)
    assert "pool-1" in [summary.pool.name for summary in listed.pools]
    assert lifecycle.status("default", SIM).session.pools == ("pool-1",)


def test_start_and_stop(runtime: Path) -> None:
    first = lifecycle.start("default", SIM, idle_timeout=60)
    assert first.started_now
    assert (first.session.sim, first.session.idle_timeout, first.session.pools) == ("4", 60, ())
    second = lifecycle.start("default", SIM)
    assert not second.started_now
    assert second.session.pid == first.session.pid
    with process_end(first.session.pid) as wait:
        stopped = lifecycle.stop("default", SIM)
        wait()
    assert (stopped.session.pid, stopped.killed, stopped.warnings) == (first.session.pid, False, ())
    assert files(runtime) == []
    problem = failure(lambda: lifecycle.stop("default", SIM))
    assert (problem.code, problem.exit) == ("no-session", 5)
    assert failure(lambda: lifecycle.status("default", SIM)).code == "no-session"


@pytest.mark.parametrize(("seconds", "has"), [(5, "an idle timeout of 5 s"), (0, "no idle timeout")])
def test_another_timeout_than_that_of_the_one_that_runs(runtime: Path, seconds: int, has: str) -> None:
    start(idle_timeout=seconds)
    for wanted in (None, seconds):
        assert lifecycle.start("default", SIM, idle_timeout=wanted).warnings == ()
    (notice,) = lifecycle.start("default", SIM, idle_timeout=60).warnings
    assert (notice.code, notice.message) == (
        "already-running",
        f"session default runs already, with {has}; stop it first to change that",
    )
    assert lifecycle.status("default", SIM).session.idle_timeout == seconds


def test_simulated_and_hardware_sessions_do_not_meet(runtime: Path) -> None:
    start()
    assert lifecycle.find("default", driver_source(None)) is None
    assert lifecycle.list_sessions(simulated=False).sessions == ()
    assert [session.name for session in lifecycle.list_sessions(simulated=True).sessions] == ["default"]


def test_twelve_starters_end_with_one_session(runtime: Path) -> None:
    script = """
from mempool_cli.requests import Create
sys.stdin.read()
answer = lifecycle.open_or_start("default", SIM).run(Create(location="0"), lambda event: None)
print(answer.where.pid, answer.exit)
"""
    starters = [python_process(script) for _ in range(12)]
    for starter in starters:
        assert starter.stdin
        starter.stdin.close()
        starter.stdin = None
    said = {starter.communicate(timeout=30)[0] for starter in starters}
    session = lifecycle.status("default", SIM).session
    assert said == {f"{session.pid} 0\n"}
    assert len(session.pools) == 12


def test_a_pipe_behind_the_starter_ends(runtime: Path) -> None:
    *interpreter, script = python_command("print(lifecycle.start('default', SIM).session.name)")
    shell = ["sh", "-c", '"$@" 2>&1 7>&1 | cat', "sh", *interpreter, script]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout == "default\n"
    assert lifecycle.find("default", SIM)


def test_the_session_holds_nothing_of_its_starter(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "selectors.py").write_text("raise SystemExit('imported from the current directory')")
    with (tmp_path / "open").open("w") as opened:
        os.set_inheritable(opened.fileno(), True)
        pid = start()
    at = Path(f"/proc/{pid}")
    assert (at / "cwd").readlink() == Path("/")
    assert os.getsid(pid) == pid
    descriptors = {int(entry.name): str(entry.readlink()) for entry in (at / "fd").iterdir()}
    assert descriptors[0] == "/dev/null"
    assert descriptors[1] == descriptors[2] == str(runtime / "sim-default.log")
    assert str(tmp_path / "open") not in descriptors.values()


def test_it_runs_from_a_deleted_directory(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    start()


def test_mps_is_looked_for_in_an_empty_directory(runtime: Path) -> None:
    pid = start()
    mps = runtime / "sim-default.mps"
    assert list(mps.iterdir()) == []
    script = "import os; from mempool_cli.mps import without_mps; from pathlib import Path\n"
    script += f"with without_mps(Path({str(mps)!r})): print(os.environ['CUDA_MPS_PIPE_DIRECTORY'])"
    assert python(script).stdout == f"{mps}\n"
    kill(pid, signal.SIGTERM)
    assert not mps.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_clean_ends(runtime: Path, number: signal.Signals) -> None:
    kill(start(), number)
    assert files(runtime) == []


def test_an_idle_session_ends(runtime: Path) -> None:
    pid = start(idle_timeout=1)
    with process_end(pid) as wait:
        wait()
    assert files(runtime) == []
    assert lifecycle.find("default", SIM) is None


def ended(requests: Sequence[AnyRequest], number: signal.Signals | None = None) -> None:
    """A session that does these and then ends: by the signal, else since it is idle."""
    pid = start(idle_timeout=60 if number else 1)
    with process_end(pid) as wait:
        runner = lifecycle.find("default", SIM)
        assert runner
        for request in requests:
            assert runner.run(request, ignore).exit == 0
        if number:
            os.kill(pid, number)
        wait()


def told(runtime: Path) -> list[str]:
    """What `tell_end` says, its time as TIME."""
    events: list[Event] = []
    lifecycle.tell_end("default", simulated=True, on_event=events.append)
    assert files(runtime) == []
    return [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME", event.text) for event in events]


@pytest.mark.parametrize(
    ("requests", "number", "words"),
    [
        ([Create(location="0", name="a"), Create(location="1")], None, "after 1 idle second; {} pools a, pool-1, and "),
        ([Create(location="0", name="a")], signal.SIGTERM, "by SIGTERM; {} pools a, and "),
        ([Grant(pool="0", to=("1",))], signal.SIGHUP, "by SIGHUP; {} "),
        ([Grant(pool="0", to=("1",)), Probe()], signal.SIGINT, "by SIGINT; {} "),
    ],
    ids=["idle", "terminated", "hung-up", "interrupted"],
)
def test_an_end_that_nobody_asked_for_is_told_once(
    runtime: Path, requests: Sequence[AnyRequest], number: signal.Signals | None, words: str
) -> None:
    ended(requests, number)
    # Neither a list nor a completion is the command that is told.
    assert lifecycle.list_sessions(simulated=True).sessions == ()
    assert lifecycle.find("default", SIM, report_death=False) is None
    assert files(runtime) == ["sim-default.ended"]
    assert (runtime / "sim-default.ended").stat().st_mode & 0o777 == 0o600
    assert told(runtime) == [f"simulated session default ended TIME {words.format('gone with it:')}all grants"]
    assert told(runtime) == []


@pytest.mark.parametrize("requests", [[], [Probe(), Grant(pool="0", to=("1",), dry_run=True)]])
def test_an_end_by_which_nobody_loses_is_not_told(runtime: Path, requests: Sequence[AnyRequest]) -> None:
    ended(requests, signal.SIGTERM)
    assert files(runtime) == []


@pytest.mark.parametrize("kind", [True, False])
def test_an_end_that_was_asked_for_is_not_told(runtime: Path, kind: bool) -> None:
    lifecycle.open_or_start("default", SIM).run(Create(location="0"), ignore)
    lifecycle.stop("default", SIM, kill=kind)
    assert files(runtime) == []


def test_what_needs_a_session_tells_of_its_end(runtime: Path) -> None:
    for needs in (lifecycle.status, lifecycle.stop):
        ended([Create(location="0")], signal.SIGTERM)
        message = failure(lambda needs=needs: needs("default", SIM)).message  # type: ignore[misc]
        assert message.startswith("no simulated session 'default' runs: it ended 2")
        assert message.endswith(" UTC by SIGTERM; gone with it: pools pool-1, and all grants")
        assert failure(lambda needs=needs: needs("default", SIM)).message == (  # type: ignore[misc]
            "no simulated session 'default' runs"
        )


def test_the_next_start_tells_of_an_end(runtime: Path) -> None:
    texts: list[str] = []

    def hear(event: Event) -> None:
        texts.append(event.text.split(" (")[0].split(" ended ")[0])

    ended([Create(location="0")], signal.SIGTERM)
    lifecycle.open_or_start("default", SIM).run(Create(location="0"), hear)
    assert texts == ["simulated session default", "started simulated session default"]
    lifecycle.stop("default", SIM)
    ended([Create(location="0")], signal.SIGTERM)
    lifecycle.start("default", SIM, on_event=hear)
    assert texts[2:] == ["simulated session default"]
    assert "sim-default.ended" not in files(runtime)


def test_a_farewell_that_cannot_be_read_or_left(place: Place) -> None:
    place.ended.write_text('{"when":1}')
    assert told(place.directory) == []
    start()
    runner = lifecycle.open_or_start("default", SIM)
    runner.run(Create(location="0"), ignore)
    place.ended.mkdir()
    kill(lifecycle.status("default", SIM).session.pid, signal.SIGTERM)
    place.ended.rmdir()
    assert files(place.directory) == []


def test_zero_is_for_ever(runtime: Path) -> None:
    start(idle_timeout=0)
    session = lifecycle.status("default", SIM).session
    assert (session.idle_timeout, session.expires) == (0, None)


def test_a_killed_session_is_told_once(runtime: Path) -> None:
    runner = lifecycle.open_or_start("default", SIM)
    runner.run(Create(location="0", name="weights", to=("1",)), ignore)
    pid = runner.run(Create(location="1"), ignore).where.pid  # type: ignore[union-attr]
    kill(pid)

    assert lifecycle.find("default", SIM, report_death=False) is None
    listed = lifecycle.list_sessions(simulated=True)
    assert listed.sessions == ()
    assert [notice.code for notice in listed.warnings] == ["session-died"]

    problem = failure(lambda: lifecycle.find("default", SIM))
    assert (problem.code, problem.exit) == ("session-died", 5)
    assert problem.message == (
        f"session default (pid {pid}) died: no trace: killed, or out of memory;"
        " lost: its pools weights, pool-1, and every grant that it made"
    )
    assert problem.hint == "the next command starts afresh"
    assert files(runtime) == []
    assert lifecycle.find("default", SIM) is None
    assert lifecycle.open_or_start("default", SIM).run(Probe(), ignore).exit == 0


@pytest.mark.parametrize("again", [lifecycle.open_or_start, lifecycle.start])
def test_starting_tells_of_a_death_too(runtime: Path, again: object) -> None:
    kill(start())
    assert callable(again)
    assert failure(lambda: again("default", SIM)).code == "session-died"
    again("default", SIM)


@pytest.mark.parametrize("kind", [True, False])
def test_stopping_tells_of_a_death_too(runtime: Path, kind: bool) -> None:
    kill(start())
    assert failure(lambda: lifecycle.stop("default", SIM, kill=kind)).code == "session-died"
    assert failure(lambda: lifecycle.stop("default", SIM, kill=kind)).code == "no-session"


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGSEGV, "Segmentation fault"), (signal.SIGABRT, "Aborted")], ids=str
)
def test_a_crash_leaves_last_words(runtime: Path, number: signal.Signals, words: str) -> None:
    pid = start()
    kill(pid, number)
    problem = failure(lambda: lifecycle.find("default", SIM))
    assert problem.message.startswith(f"session default (pid {pid}) died: {words}; it had created no pools")
    crash = runtime / "sim-default.crash"
    assert problem.hint == f"the next command starts afresh; its last words are in {crash}"
    assert "host.py" in crash.read_text()
    assert files(runtime) == ["sim-default.crash"]


def test_a_journal_that_cannot_be_read(place: Place) -> None:
    place.journal.write_text("{")
    problem = failure(lambda: lifecycle.find("default", SIM))
    assert problem.message == (
        "session default died: no trace: killed, or out of memory;"
        " what it held is not known: its journal cannot be read"
    )
    assert lifecycle.find("default", SIM) is None


def test_stale_files_do_not_matter(place: Place) -> None:
    for path in (place.socket, place.lock, place.log):
        path.write_text("")
    place.mps.mkdir()
    start()
    lifecycle.stop("default", SIM)
    assert files(place.directory) == []


def test_a_log_that_says_nothing_does_not_stay(place: Place) -> None:
    """As of a session that was killed on its way out, when it had nothing more to hold."""
    place.log.touch()
    assert lifecycle.find("default", SIM) is None
    assert files(place.directory) == []


def test_the_log_of_a_clean_end_stays_with_a_traceback_alone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    program = boot._PROGRAM
    for said, left in (("a word", []), ("Traceback (most recent call last):", ["sim-default.log"])):
        monkeypatch.setattr(boot, "_PROGRAM", f"import sys; sys.stderr.write({said!r})\n{program}")
        start()
        lifecycle.stop("default", SIM)
        assert files(place.directory) == left


def test_the_journal_knows_pools_and_never_access(place: Place) -> None:
    runner = lifecycle.open_or_start("default", SIM)
    runner.run(Create(location="0", name="a"), ignore)
    before = place.journal.read_bytes()
    runner.run(Grant(pool="a", to=("1",)), ignore)
    assert place.journal.read_bytes() == before
    state = journal.read(place.journal)
    assert state is not None
    assert (state.pools, state.sim) == (("a",), "4")


def test_a_journal_that_cannot_be_written_costs_no_pool(place: Place) -> None:
    start()
    runner = lifecycle.open_or_start("default", SIM)
    place.new.mkdir()
    assert runner.run(Create(location="0"), ignore).exit == 0
    assert runner.run(List(), ignore).exit == 0
    assert "the journal cannot be written" in place.log.read_text()
    place.new.rmdir()
    assert lifecycle.stop("default", SIM).session.pools == ("pool-1",)


def test_a_failure_of_the_server_itself_is_a_death(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = "from mempool_cli.session.server import Server; Server._accept = lambda self: 1 / 0"
    monkeypatch.setattr(boot, "_PROGRAM", boot._PROGRAM.replace("sys.exit", f"{broken}\nsys.exit"))
    start()
    problem = failure(lambda: lifecycle.find("default", SIM))
    assert "died: ZeroDivisionError: division by zero" in problem.message


def test_a_hung_session_is_killed(place: Place) -> None:
    runner = lifecycle.open_or_start("default", SIM)
    runner.run(Create(location="0"), ignore)
    pid = lifecycle.status("default", SIM).session.pid
    os.kill(pid, signal.SIGSTOP)
    problem = failure(lambda: lifecycle.find("default", SIM, timeout=0.1))
    assert (problem.code, problem.exit) == ("session-busy", 5)
    assert problem.message.startswith(f"session default (pid {pid}) does not answer")
    assert failure(lambda: lifecycle.stop("default", SIM, timeout=0.1)).code == "session-busy"
    (listed,) = lifecycle.list_sessions(simulated=True).sessions
    # Its journal is of the start, when it was to end after some seconds without a request.
    assert (listed.pid, listed.answering, listed.expires, listed.idle_timeout) == (pid, False, None, 1800)
    stopped = lifecycle.stop("default", SIM, kill=True)
    assert (stopped.killed, stopped.session.pools, stopped.session.expires) == (True, ("pool-1",), None)
    assert files(place.directory) == []


def test_it_ends_again_when_the_first_request_fails(place: Place) -> None:
    runner = lifecycle.open_or_start("default", SIM)
    answer = runner.run(Create(location="99"), ignore)
    assert (answer.exit, held(place.lock)) == (2, False)
    assert answer.where is not None
    with suppress(ProcessLookupError), process_end(answer.where.pid) as wait:
        wait()
    assert files(place.directory) == []


def test_an_interrupt_before_it_is_started(place: Place) -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    place.ended.write_bytes(msgspec.json.encode(Farewell(when=datetime.now(UTC), why="by SIGTERM", pools=())))
    with pytest.raises(KeyboardInterrupt):
        lifecycle.start("default", SIM, on_event=interrupt)
    assert files(place.directory) == []


def test_it_ends_again_when_the_first_request_never_comes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = Lock.take(place.lock)
    assert lock
    soon = "from mempool_cli.session import host; host.FIRST_USE_SECONDS = 0.2"
    monkeypatch.setattr(boot, "_PROGRAM", boot._PROGRAM.replace("sys.exit", f"{soon}\nsys.exit"))
    state = boot.boot(place, lock, SIM, idle_timeout=60, provisional=True)
    with process_end(state.pid) as wait:
        wait()
    assert files(place.directory) == []


def test_it_stays_when_a_later_request_fails(runtime: Path) -> None:
    runner = lifecycle.open_or_start("default", SIM)
    assert runner.run(Probe(), ignore).exit == 0
    assert runner.run(Create(location="99"), ignore).exit == 2
    assert lifecycle.find("default", SIM)


def test_it_stays_when_it_was_started_for_itself(runtime: Path) -> None:
    start()
    runner = lifecycle.open_or_start("default", SIM)
    assert runner.run(Create(location="99"), ignore).exit == 2
    assert lifecycle.find("default", SIM)


def test_a_runner_starts_anew_when_its_session_has_ended(runtime: Path) -> None:
    start()
    runner = lifecycle.open_or_start("default", SIM)
    found = lifecycle.find("default", SIM)
    lifecycle.stop("default", SIM)
    assert found is not None
    assert failure(lambda: found.run(Probe(), ignore)).code == "no-session"
    assert isinstance(runner.run(Create(location="0"), ignore).result, PoolCreated)


def test_a_machine_without_devices_is_told_at_the_start(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "none")
    problem = failure(start)
    assert (problem.code, problem.exit) == ("no-device", 3)
    assert files(runtime) == []


def test_a_session_that_cannot_begin_says_why(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "_PROGRAM", "raise OSError('no luck')")
    problem = failure(start)
    assert (problem.code, problem.exit) == ("session-start", 5)
    assert problem.message == "session default did not start: OSError: no luck"
    assert problem.hint == f"its log is {runtime / 'sim-default.log'}"
    monkeypatch.setattr(boot, "_PROGRAM", "raise SystemExit")
    assert failure(start).message == "session default did not start: it ended without a word: killed, or out of memory"
    assert files(runtime) == []


@pytest.mark.parametrize("function", ["_load", "_listen", "journal.write"])
def test_a_mistake_of_ours_before_it_serves_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    broken = f"from mempool_cli.session import host; host.{function} = lambda *_, **__: 1 / 0"
    monkeypatch.setattr(boot, "_PROGRAM", boot._PROGRAM.replace("sys.exit", f"{broken}\nsys.exit"))
    problem = failure(start)
    assert (problem.code, problem.exit) == ("session-start", 5)
    assert problem.message == "session default did not start: ZeroDivisionError: division by zero"
    assert problem.hint == f"its log is {place.log}"
    assert place.log.read_text().startswith("Traceback")
    assert files(place.directory) == ["sim-default.log"]
    monkeypatch.undo()


def test_a_time_that_is_too_long(runtime: Path) -> None:
    start(idle_timeout=MAX_IDLE_SECONDS)
    assert lifecycle.find("default", SIM)
    lifecycle.stop("default", SIM)
    problem = failure(lambda: start(idle_timeout=MAX_IDLE_SECONDS + 1))
    assert (problem.code, "`$.idle_timeout`" in problem.message) == ("session-start", True)


def test_a_session_that_is_never_ready(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "_PROGRAM", "import signal; signal.pause()")
    monkeypatch.setattr(boot, "READY_SECONDS", 0.1)
    assert failure(start).message == "session default did not start: it is not ready after 0.1 s"
    assert files(runtime) == []


def test_without_an_interpreter(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert "No such file" in failure(start).message
    monkeypatch.setattr(sys, "executable", "")
    assert "no Python interpreter" in failure(start).message
    assert files(runtime) == []


def test_in_the_foreground(place: Place) -> None:
    script = "lifecycle.serve_here('default', SIM, on_ready=lambda status: print(status.session.pid, flush=True))"
    with python_process(script) as process:
        assert process.stdout
        assert process.stdout.readline() == f"{process.pid}\n"
        assert lifecycle.status("default", SIM).session.pid == process.pid
        assert "runs already" in failure(lambda: lifecycle.serve_here("default", SIM)).message
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert files(place.directory) == []


@pytest.mark.parametrize("at", ["_load", "_listen", "_stopped_by_signals", "journal.write", "announce"])
def test_in_the_foreground_what_ends_it_before_it_serves_leaves_nothing(place: Place, at: str) -> None:
    script = f"""
from mempool_cli.session import host
def interrupt(*_, **__):
    raise KeyboardInterrupt
if {at!r} != "announce":
    host.{at} = interrupt
lifecycle.serve_here("default", SIM, on_ready=interrupt)
"""
    assert python(script).stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert files(place.directory) == []
    assert lifecycle.find("default", SIM) is None


def test_a_lock_whose_file_was_removed_is_no_lock(place: Place) -> None:
    first = Lock.take(place.lock)
    assert first
    assert Lock.take(place.lock) is None
    first.unlink()
    second = Lock.take(place.lock)
    assert second
    first.release()
    assert place.lock.exists()
    assert Lock.take(place.lock) is None
    second.release()
    assert not place.lock.exists()
