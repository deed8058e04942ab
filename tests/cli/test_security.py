"""What others can put in our way: names, files, variables, directories and modules. docs/security.md promises it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mempool_cli.session.directory import Place

from .conftest import Mempool, MempoolProcess
from .documents import document
from .machines import FOUR
from .processes import COMMAND, SECONDS

EVIL = "a\x1b]0;x\x07\x1b[31m\x9b2J\x7f\r\u202e\u2066b"
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def check_harmless(mempool: Mempool, *words: str) -> None:
    """What is shown, as text and as JSON, steers no terminal; it is no internal error either."""
    done = mempool(*words)
    assert not STEERS.search(done.out + done.err), done
    assert done.status != 70, done
    found = mempool("--format", "json", *words)
    assert found.out.isascii()
    assert not STEERS.search(
        found.out.replace("\x7f", "") + found.err
    )  # JSON need not escape it, and terminals ignore it


@pytest.fixture
def machine(tmp_path: Path) -> str:
    """A machine whose file, cards and description have such names."""
    file = tmp_path / f"{EVIL}.toml"
    name = json.dumps(EVIL.replace("\x7f", ""))
    file.write_text(f"description = {name}\n[[device]]\nname = {name}\npci_bus_id = {name}\n{FOUR}")
    return str(file)


@pytest.mark.parametrize(
    "words",
    [
        "devices",
        "list",
        "show 0",
        "probe",
        "probe --matrix",
        "probe --trace",
        "grant 0 --to 1 --dry-run",
        "grant 0 --to 9",
        "create 0 --to 1",
        "revoke 0 --from 0",
        "set-current 0",
        "destroy 0",
        "session start",
        "session list",
        "session status",
        "session stop",
        "verify --owner 0 --accessor 1 --size 8",
        "check --select devices",
        "check --init",
        "doctor",
        "snapshot",
        "repro owner-in-batch",
    ],
)
def test_a_machine(mempool: Mempool, machine: str, words: str) -> None:
    check_harmless(mempool, "--sim", machine, *words.split())
    mempool("--sim", machine, "session", "stop")


@pytest.mark.parametrize(
    "words",
    [
        [EVIL],
        ["session", EVIL],
        [f"--{EVIL}"],
        ["probe", f"--{EVIL}"],
        ["probe", EVIL],
        ["show", EVIL],
        ["create", EVIL],
        ["create", "0", "--name", EVIL],
        ["create", "0", "--max-size", EVIL],
        ["create", "0", "--to", EVIL],
        ["grant", "0", "--to", EVIL],
        ["revoke", "0", "--from", EVIL],
        ["set-current", EVIL],
        ["destroy", EVIL],
        ["--session", EVIL, "session", "start"],
        ["--session", EVIL, "probe"],
        ["--format", EVIL, "probe"],
        ["--timeout", EVIL, "probe"],
        ["session", "start", "--idle-timeout", EVIL],
        ["session", "run", "--", EVIL],
        ["verify", "--size", EVIL],
        ["verify", "--report", f"/none/{EVIL}"],
        ["check", EVIL],
        ["check", "--select", EVIL],
        ["check", "--junit", f"/none/{EVIL}"],
        ["doctor", EVIL],
        ["snapshot", "-o", f"/none/{EVIL}"],
        ["diff", EVIL],
        ["repro", EVIL],
        ["repro", "owner-in-batch", "--report", f"/none/{EVIL}"],
    ],
    ids=lambda words: " ".join(words).replace(EVIL, "EVIL"),
)
def test_words(mempool: Mempool, words: list[str]) -> None:
    check_harmless(mempool, "--sim", "2", *words)


@pytest.mark.parametrize("spec", [EVIL, f"/none/{EVIL}", f"2,fault={EVIL}", f"2,{EVIL}", f"2,fault=leak:{EVIL}"])
def test_a_spec(mempool: Mempool, spec: str) -> None:
    check_harmless(mempool, "--sim", spec, "probe")


@pytest.mark.parametrize("words", [["--name", EVIL, "--", "true"], ["--grant", EVIL, "--", "true"]])
def test_exec(mempool: Mempool, words: list[str]) -> None:
    check_harmless(mempool, "exec", *words)


def test_a_program_that_is_not_there(mempool_process: MempoolProcess) -> None:
    done = mempool_process("exec", "--", EVIL)
    assert done.status == 127
    assert not STEERS.search(done.err)


@pytest.mark.parametrize(
    "name",
    ["SIM", "SESSION", "FORMAT", "COLOR", "TRACE", "TIMEOUT", "NO_SESSION", "RUNTIME_DIR", "CUDA_VISIBLE_DEVICES"],
)
@pytest.mark.parametrize("words", ["probe", "create 0", "session list", "doctor"])
def test_variables(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, words: str) -> None:
    monkeypatch.chdir(tmp_path)  # a relative RUNTIME_DIR is made there
    monkeypatch.setenv(name if name.startswith("CUDA") else f"MEMPOOL_{name}", EVIL)
    check_harmless(mempool, *([] if name == "SIM" else ["--sim", "2"]), *words.split())


def test_another_environment_is_told_harmlessly(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mempool("--sim", "2", "session", "start").status == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"0,{EVIL}")
    check_harmless(mempool, "--sim", "2", "grant", "0", "--to", "1")


@pytest.mark.parametrize(
    "text",
    [
        'description = "{}"\n[[device]]\nname = "{}"\n',
        '[checks]\nselect = ["{}"]\n',
        '[driver]\ncuda = "{}"\n',
        '"{}" = 1\n',
        "{}",
    ],
)
def test_a_policy(mempool: Mempool, tmp_path: Path, text: str) -> None:
    file = tmp_path / f"{EVIL}.toml"
    file.write_text(text.replace("{}", json.dumps(EVIL.replace("\x7f", ""))[1:-1]))
    check_harmless(mempool, "--sim", "2", "check", str(file), "--select", "devices")


def test_a_snapshot(mempool: Mempool, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / f"{EVIL}.json"
    assert mempool("--sim", "2", "snapshot", "-o", str(old)).status == 0
    taken = json.loads(old.read_text())
    for device in taken["devices"]:
        device |= {"name": EVIL, "pci_bus_id": EVIL}
    taken["machine"] |= {"host_name": EVIL, "kernel": EVIL, "iommu": EVIL, "cuda_visible_devices": EVIL}
    taken["failure"] = {"code": EVIL, "message": EVIL, "hint": EVIL, "driver": None}
    new.write_text(json.dumps(taken))
    check_harmless(mempool, "diff", str(old), str(new))
    for key, value in (("schema", EVIL), ("time", EVIL), (EVIL, EVIL), ("devices", EVIL)):
        new.write_text(json.dumps({**taken, key: value}))
        check_harmless(mempool, "diff", str(new), str(old))


def test_files_of_a_session(mempool: Mempool, runtime: Path) -> None:
    place = Place(runtime, True, "default")
    assert mempool("--sim", "2", "create", "0").status == 0
    state = json.loads(place.journal.read_text())
    assert mempool("--sim", "2", "session", "stop").status == 0
    for words in (["session", "list"], ["session", "status"], ["probe"]):
        place.write(place.journal, json.dumps({**state, "pools": [EVIL], "sim": EVIL, "version": EVIL}).encode())
        place.log.write_text(EVIL)
        check_harmless(mempool, "--sim", "2", *words)


# --- names that would leave their directory ---

LEAVING = ["../x", "/tmp/x", "..", ".", "a/../../x", "a/b", "a\0b", "~x", "-x"]


@pytest.mark.parametrize("name", LEAVING)
def test_names_of_sessions_programs_and_pools(mempool: Mempool, runtime: Path, name: str) -> None:
    before = sorted(runtime.parent.rglob("*"))
    for words in (
        ["session", "start"],
        ["session", "stop"],
        ["session", "stop", "--kill"],
        ["grant", "0", "--to", "1"],
    ):
        assert mempool("--sim", "2", f"--session={name}", *words).status == 2
    assert mempool("exec", f"--name={name}", "--", "true").status == 2
    assert mempool("--sim", "2", "--no-session", "create", "0", f"--name={name}").status == 2
    assert sorted(runtime.parent.rglob("*")) == before


def test_a_journal_with_such_a_name(mempool: Mempool, runtime: Path) -> None:
    """Nothing outside of the directory is looked at, or removed."""
    place = Place(runtime, False, "default")
    mempool("--sim", "2", "session", "start")
    state = json.loads(Place(runtime, True, "default").journal.read_text())
    (runtime / "gpu-..").mkdir(mode=0o700)
    for kind in ("socket", "journal", "new"):
        (runtime.parent / f"x.{kind}").write_text("precious")
    for kind in ("program", "session"):
        place.write(place.journal, json.dumps({**state, "kind": kind, "name": "../../../x"}).encode())
        for words in (["session", "list"], ["session", "status"], ["session", "stop", "--kill"], ["probe"]):
            assert mempool(*words).status != 70
    assert sorted(path.name for path in runtime.parent.glob("x.*")) == ["x.journal", "x.new", "x.socket"]


# --- the runtime directory ---


@pytest.mark.parametrize(
    "words", ["probe", "create 0", "session start", "session stop", "session list", "session run -- true"]
)
def test_a_runtime_directory_that_is_not_ours_alone(mempool: Mempool, runtime: Path, words: str) -> None:
    def code() -> object:
        return document(mempool("--sim", "2", "--format", "json", *words.split()))["error"]["code"]

    runtime.chmod(0o770)
    assert code() == "runtime-directory"
    runtime.chmod(0o700)
    runtime.rename(runtime.with_name("real"))
    runtime.symlink_to("real")
    assert code() == "runtime-directory"
    assert list(runtime.iterdir()) == []
    runtime.unlink()
    runtime.with_name("real").rename(runtime)


# --- modules in the working directory ---

PLANTED = [
    *("sitecustomize", "usercustomize", "mempool_cli", "click", "msgspec", "rich", "json", "socket", "tomllib", "uuid"),
    *("subprocess", "cuda", "junitparser", "pynvml", "encodings"),
]


@pytest.mark.parametrize(
    "words",
    [
        "--sim 2 create 0",
        "--sim 2 session run -- true",
        "--sim 2 verify --size 8 --owner 0",
        "--sim 2 repro owner-in-batch",
        "--sim 2 doctor",
        "exec -- true",
    ],
)
def test_modules_in_the_working_directory(runtime: Path, tmp_path: Path, words: str) -> None:
    """`-P` is what the installed command has of itself: its directory is first in the path, not the working one."""
    trap = "import os; open(os.environ['MEMPOOL_TEST_TRAP'], 'a').write(__name__ + '\\n')\n"
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text(trap)
    caught = runtime.parent / "trap"
    environment = {**os.environ, "MEMPOOL_TEST_TRAP": str(caught)}
    done = subprocess.run(
        [*COMMAND, *words.split()], cwd=tmp_path, env=environment, capture_output=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    subprocess.run([*COMMAND, "--sim", "2", "session", "stop"], cwd=tmp_path, env=environment, capture_output=True)
    assert not caught.exists(), caught.read_text()


def test_the_installed_command_has_no_working_directory_in_its_path(runtime: Path, tmp_path: Path) -> None:
    """As pip writes it: a script in a directory of its own."""
    script = tmp_path / "bin" / "mempool"
    script.parent.mkdir()
    script.write_text("from mempool_cli.__main__ import main\nmain()\n")
    here = tmp_path / "here"
    here.mkdir()
    (here / "mempool_cli.py").write_text("raise SystemExit('planted')")
    (here / "click.py").write_text("raise SystemExit('planted')")
    done = subprocess.run(
        [sys.executable, str(script), "--sim", "1", "probe"], cwd=here, capture_output=True, timeout=SECONDS, text=True
    )
    assert (done.returncode, "planted" in done.stderr) == (0, False)
