"""The runtime directory is private, or nothing happens in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mempool_cli.session import directory, lifecycle
from mempool_cli.session.directory import Place

from .hosts import SIM, failure, files, python, start

ROOT = os.geteuid() == 0
NOBODY = 65534
OWN = "choose a directory of your own that only you can write to, e.g. `MEMPOOL_RUNTIME_DIR=/tmp/mine`"


def found() -> str:
    problem = failure(lambda: lifecycle.find("default", SIM))
    assert (problem.code, problem.exit) == ("runtime-directory", 5)
    assert problem.hint
    return problem.message


@pytest.mark.parametrize("name", ["a", "_", "A.b-c_9", "x" * 64])
def test_names(name: str) -> None:
    assert directory.check_name(name) == name


@pytest.mark.parametrize("name", ["", "9a", "-a", ".a", "a/b", "a b", "é", "a\n", "x" * 65])
def test_bad_names(name: str, runtime: Path) -> None:
    problem = failure(lambda: lifecycle.find(name, SIM))
    assert (problem.code, problem.exit) == ("bad-name", 2)


def test_the_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPOOL_RUNTIME_DIR", "")
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/var/tmp")
    assert directory.chosen_directory() == Path(f"/tmp/mempool-{os.geteuid()}")
    monkeypatch.setenv("MEMPOOL_RUNTIME_DIR", "run")
    assert directory.chosen_directory() == Path.cwd() / "run"


def test_asking_makes_no_directory(runtime: Path) -> None:
    runtime.rmdir()
    assert lifecycle.find("default", SIM) is None
    assert lifecycle.list_sessions(simulated=True).sessions == ()
    assert failure(lambda: lifecycle.stop("default", SIM)).code == "no-session"
    assert not runtime.exists()


def test_starting_makes_a_private_directory(runtime: Path) -> None:
    runtime.rmdir()
    start()
    assert runtime.stat().st_mode & 0o777 == 0o700
    for name in files(runtime):
        assert (runtime / name).stat().st_mode & 0o077 == 0, name


def test_a_link(runtime: Path) -> None:
    runtime.rename(runtime.with_name("real"))
    runtime.symlink_to("real")
    assert "is a symbolic link" in found()


def test_a_file(runtime: Path) -> None:
    runtime.rmdir()
    runtime.write_text("")
    assert "is no directory" in found()


@pytest.mark.parametrize("mode", [0o770, 0o1777])
def test_open_to_others(runtime: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """Whoever names a directory that others use too must not be told to close it to them."""
    runtime.chmod(mode)
    problem = failure(lambda: lifecycle.find("default", SIM))
    assert problem.message == f"{runtime} is open to others: mode {mode:04o}"
    assert problem.hint == OWN
    monkeypatch.delenv("MEMPOOL_RUNTIME_DIR")
    monkeypatch.setattr(directory, "chosen_directory", lambda: runtime)
    hint = failure(lambda: lifecycle.find("default", SIM)).hint
    assert hint == (f"look at what is in it, then `chmod 700 {runtime}`" if mode == 0o770 else OWN)


def test_parent_writable_by_others(runtime: Path) -> None:
    runtime.parent.chmod(0o777)
    assert "is writable by others" in found()
    runtime.parent.chmod(0o1777)
    assert lifecycle.find("default", SIM) is None


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_of_another_uid(runtime: Path) -> None:
    os.chown(runtime, NOBODY, NOBODY)
    assert f"belongs to uid {NOBODY}, not to uid 0" in found()
    os.chown(runtime, 0, 0)
    os.chown(runtime.parent, NOBODY, NOBODY)
    assert f"its parent {runtime.parent} belongs to uid {NOBODY}" in found()


@pytest.mark.skipif(not ROOT, reason="only root can become someone else")
def test_as_another_user(runtime: Path) -> None:
    start()
    runtime.parent.chmod(0o755)
    done = python("lifecycle.find('default', SIM)", user=NOBODY)
    assert f"{runtime}: belongs to uid 0, not to uid {NOBODY}" in done.stderr


def test_a_long_directory_hashes_the_names(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = runtime / ("d" * (80 - len(str(runtime))))
    monkeypatch.setenv("MEMPOOL_RUNTIME_DIR", str(deep))
    name = "n" * 64
    start(name)
    assert all("~" in entry for entry in files(deep))
    assert lifecycle.status(name, SIM).session.name == name
    assert [session.name for session in lifecycle.list_sessions(simulated=True).sessions] == [name]
    assert lifecycle.find("n" * 63, SIM) is None
    lifecycle.stop(name, SIM)
    assert files(deep) == []


def test_a_directory_too_long_for_any_socket(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = runtime / ("d" * 100)
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("MEMPOOL_RUNTIME_DIR", str(deep))
    assert "too long for a socket, whose path holds 107 bytes" in found()


def test_names_do_not_meet(runtime: Path) -> None:
    paths = [
        getattr(Place(runtime, simulated, name), kind)
        for simulated in (True, False)
        for name in ("a", "a.lock", "a.socket", "sim-a")
        for kind in ("socket", "lock", "journal", "log", "crash", "ended", "mps")
    ]
    assert len(set(paths)) == len(paths)


def test_the_package_alone_imports_little() -> None:
    script = "import sys; import mempool_cli.session; print({'socket', 'msgspec', 'subprocess'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
