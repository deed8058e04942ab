"""The agent from the start of a program to its end, whatever end that is."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
from contextlib import closing
from pathlib import Path

import pytest

from .test_program_pools import BINDINGS, TRAIN, rows
from .worlds import SECONDS, World

pytestmark = pytest.mark.standin

NOT_YET = (
    "error: the program has not initialised CUDA yet [not-initialised]\n  try: `--wait SECONDS` waits until it has\n"
)
GONE = (
    "error: no session or program 'train' runs [no-session]\n  try: `mempool session list` shows those that do;"
    " `mempool --session train session start` starts one, `mempool --session train exec` a program\n"
)


# --- before CUDA ---


@pytest.mark.parametrize("loaded", ["", "call('cuDriverGetVersion')"], ids=["not loaded", "loaded"])
def test_a_program_that_has_not_initialised_cuda(world: World, loaded: str) -> None:
    code = f"""{BINDINGS}
{loaded}
say("ready")
input()
say("libcuda" in open("/proc/self/maps").read(), cuda.cuDeviceGetCount()[0].name)
"""
    with world.program(code) as program:
        assert program.says() == "ready"
        for command in (["probe"], ["grant", "0", "--to", "1"], ["create", "0"], ["devices"]):
            assert world.mempool(*TRAIN, *command) == (3, "", NOT_YET)
        document = json.loads(world.mempool(*TRAIN, "--format", "json", "probe", "--wait", "0.1").out)
        assert (document["exit"], document["error"]["code"], document["where"]["kind"]) == (
            3,
            "not-initialised",
            "program",
        )
        program.hears()
        assert program.says() == f"{bool(loaded)} CUDA_ERROR_NOT_INITIALIZED"
        assert program.ends() == (0, "", "")


def test_waiting_for_a_program_to_come_and_to_initialise_cuda(world: World) -> None:
    waits = world.start("mempool", *TRAIN, "probe", "0", "--wait", str(SECONDS))
    with world.program(f"{BINDINGS}\nsay('up')\ninput()\ncall('cuInit', 0)\nsay('now')\ninput()") as program:
        assert program.says() == "up"
        assert world.mempool(*TRAIN, "--wait", "0.1", "probe") == (3, "", NOT_YET)
        program.hears()
        assert program.says() == "now"
        out, _ = waits.communicate(timeout=SECONDS)
        assert (waits.returncode, out.splitlines()[1]) == (0, "default:0  default,current  0   owner 0; none 1-3")
        program.hears()
        assert program.ends() == (0, "", "")
    assert world.mempool(*TRAIN, "--wait", "0.1", "probe") == (5, "", GONE)


def test_grants_are_made_when_cuda_is_initialised(world: World) -> None:
    code = f"{BINDINGS}\ninput()\ncall('cuInit', 0)\ninput()"
    with world.program(code, "--grant", "0:1-2", "--grant", "1:0", "--grant", "2:9,0") as program:
        program.hears()
        for line in (
            "pool default:0: access granted to devices 1-2",
            "pool default:1: access granted to device 0",
            "--grant 2:9,0: not done: there is no device 9: devices 0 to 3 are visible [unknown-device]",
        ):
            assert program.tells().endswith(f"): {line}")
        assert rows(world) == [
            "default:0: owner 0; RW 1-2; none 3",
            "default:1: owner 1; RW 0; none 2-3",
            "default:2: owner 2; none 0-1, 3",
            "default:3: owner 3; none 0-2",
        ]
        program.hears()
        assert program.ends() == (0, "", "")


def test_grants_are_made_in_a_program_that_ends_at_once(world: World) -> None:
    done = world.python(f"{BINDINGS}\ncall('cuInit', 0)", "--name", "train", "--grant", "0:1")
    told = "mempool: program train (pid PID): pool default:0: access granted to device 1\n"
    assert done == (0, "", told)


def test_grants_that_could_not_be_made(world: World) -> None:
    assert world.python("print('no CUDA')", "--name", "train", "--grant", "0:1", "--grant", "1:all") == (
        0,
        "no CUDA\n",
        "mempool: --grant 0:1: not done: the program has not initialised CUDA\n"
        "mempool: --grant 1:all: not done: the program has not initialised CUDA\n",
    )


def test_the_processes_that_may_have_initialised_cuda_are_named(world: World) -> None:
    code = """
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"], stdin=subprocess.PIPE)
input()
worker.communicate(b"\\n")
"""
    with world.program(code) as program:
        assert program.says() == "up"
        done = world.mempool(*TRAIN, "probe")
        assert re.sub(r"train\.\d+", "train.PID", done.err.splitlines()[1]) == (
            "  try: another process of it may have: `--session train.PID`; `--wait SECONDS` waits until it has"
        )
        program.hears()
        assert program.ends() == (0, "", "")


def test_commands_about_something_else_tell_of_programs(world: World) -> None:
    told = "not asked: the program train (`--session train`)\n"
    with world.program("print('up', flush=True)\ninput()") as program:
        assert program.says() == "up"
        assert world.mempool("probe", "0").err == told
        started = world.mempool("--session", "trian", "grant", "0", "--to", "1")
        assert started.err == f"{told}started session trian (pid PID)\n"
        assert world.mempool("--session", "trian", "session", "stop").status == 0
        assert world.mempool(*TRAIN, "session", "start").err.startswith("error: train is a program (pid PID)")
        program.hears()
        assert program.ends() == (0, "", "")


# --- what the program does to itself ---


def test_a_program_that_has_imported_nothing_is_the_main_thread_and_ends(world: World) -> None:
    # Before Python 3.13 the thread that imports `threading` first is taken for the main one.
    code = "print('up', flush=True)\ninput()\nimport threading\nprint(threading.current_thread().name)"
    with world.program(code) as program:
        assert program.says() == "up"
        assert world.mempool(*TRAIN, "probe") == (3, "", NOT_YET)
        program.hears()
        assert program.ends() == (0, "MainThread\n", "")


@pytest.mark.parametrize("asked", [False, True])
def test_a_program_that_closes_all_descriptors_keeps_its_files(world: World, tmp_path: Path, asked: bool) -> None:
    code = f"""
import os
print("up", flush=True)
input()
os.closerange(3, 4096)
files = [open("{tmp_path}/" + str(number), "w") for number in range(300)]
print("closed", flush=True)
input()
for number, file in enumerate(files):
    file.write(str(number))
"""
    with world.program(code) as program:
        assert program.says() == "up"
        if asked:
            assert world.mempool(*TRAIN, "probe").status == 3
        program.hears()
        assert program.says() == "closed"
        program.hears()
        assert program.ends() == (0, "", "")
    assert [(tmp_path / str(number)).read_text() for number in range(300)] == [str(number) for number in range(300)]
    assert world.left() == []


def test_a_program_that_loses_the_directory_of_the_agent(world: World) -> None:
    code = "import shutil, os\nshutil.rmtree(os.environ['MEMPOOL_RUNTIME_DIR'])\nprint('end')"
    assert world.python(code) == (0, "end\n", "")
    world.runtime.mkdir(mode=0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_program_that_becomes_another_user(world: World) -> None:
    assert world.python("import os\nos.setuid(65534)\nprint('end')") == (0, "end\n", "")
    assert world.left() == []


# --- its end ---


def test_the_last_matrix(world: World, tmp_path: Path) -> None:
    code = f"{BINDINGS}\ncall('cuInit', 0)\nfrom mempool_cli import access\naccess.set_peers(0, [1])\n"
    options = ["--name", "train", "--probe-at-exit", str(tmp_path / "matrix")]
    assert world.python(code, *options) == (0, "", "")
    table = (tmp_path / "matrix").read_text()
    assert table.splitlines()[1] == "default:0  default,current  0   -     own  RW   -    -"
    assert world.python(code, *options, "--format", "json") == (0, "", "")
    document = json.loads((tmp_path / "matrix").read_text())
    assert (document["command"], document["data"]["rows"][0]["cells"][1]["access"]) == ("probe", "rw")
    assert [path.name for path in tmp_path.iterdir()] == ["matrix"]


def test_the_last_matrix_goes_where_it_was_asked_for(world: World, tmp_path: Path) -> None:
    init = f"{BINDINGS}\ncall('cuInit', 0)\n"
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to("real")
    with world.program("print('up', flush=True)\ninput()") as first:
        assert first.says() == "up"
        assert world.python(init, "--name", "train", "--probe-at-exit", str(tmp_path / "link")).status == 0
        first.hears()
        assert first.ends().status == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text().startswith("pool       kind")
    (tmp_path / "program.py").write_text(init)
    program = f"{sys.executable} -P {tmp_path}/program.py"
    twice = ["exec", "--probe-at-exit", str(tmp_path / "two.json"), "--", "sh", "-c", f"{program}; {program}"]
    assert world.mempool(*twice) == (0, "", "")
    assert json.loads((tmp_path / "two.json").read_text())["command"] == "probe"
    assert len(list(tmp_path.glob("two.*.json"))) == 1
    os.mkfifo(tmp_path / "fifo")
    refused = world.python(init, "--probe-at-exit", str(tmp_path / "fifo"))
    assert (refused.status, refused.out) == (74, "")


@pytest.mark.parametrize(
    ("code", "status", "why"),
    [
        ("pass", 0, "mempool: {file} was not written: the program has not initialised CUDA\n"),
        ("import os; os._exit(3)", 3, "mempool: {file} was not written: the program ended by a signal or os._exit\n"),
        (
            "import os; os.kill(os.getpid(), 9)",
            137,
            "mempool: {file} was not written: the program ended by a signal or os._exit\n",
        ),
    ],
)
def test_no_last_matrix_leaves_the_one_before(world: World, tmp_path: Path, code: str, status: int, why: str) -> None:
    file = tmp_path / "matrix.txt"
    file.write_text("before")
    done = world.python(code, "--name", "train", "--probe-at-exit", str(file))
    assert done == (status, "", why.format(file=file))
    assert file.read_text() == "before"
    assert world.left() == []


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "sys.exit(4)", "1 / 0"])
def test_nothing_is_left_of_a_program(world: World, end: str) -> None:
    code = (
        f"import os, sys\nfrom cuda.bindings import driver\ndriver.cuInit(0)\nprint('go', flush=True)\ninput()\n{end}"
    )
    with world.program(code) as program:
        assert program.says() == "go"
        assert world.mempool(*TRAIN, "create", "0").status == 0
        program.hears()
        program.ends()
    assert world.left() == []
    assert world.mempool(*TRAIN, "probe") == (5, "", GONE)


def test_a_program_that_was_started_by_hand_and_killed_is_no_loss_to_tell(world: World) -> None:
    code = "import mempool_cli.agent as agent\nprint(agent.start('train'), agent.start('other'), flush=True)\ninput()"
    with world.program_without_exec(code) as program:
        assert program.says() == "train train"
        assert world.mempool(*TRAIN, "session", "status").out.startswith("program train runs (pid PID)\n")
        program.process.kill()
        program.process.wait()
    assert len(world.left()) > 1
    assert world.mempool("session", "list") == (0, "no session runs\n", "")
    assert world.left() == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_that_ends_during_a_request(world: World, number: signal.Signals) -> None:
    code = f"{BINDINGS}\nimport os\ncall('cuInit', 0)\nsay(os.getpid())\ninput()"
    with world.program(code) as program:
        pid = int(program.says())
        assert world.mempool(*TRAIN, "probe").status == 0
        with world.frozen_driver():
            asks = world.start("mempool", *TRAIN, "probe")
            assert asks.stderr is not None
            assert asks.stderr.readline() == "waiting for the driver's answer...\n"
            os.kill(pid, number)
            out, err = asks.communicate(timeout=SECONDS)
        assert (asks.returncode, out, err) == (
            5,
            "",
            "error: program train ended before it answered [session-died]\n  try: see `mempool session list`\n",
        )
        assert program.ends().status == 128 + number
    assert world.left() == []


def test_an_exit_waits_for_a_request_but_not_for_long(world: World) -> None:
    code = f"{BINDINGS}\ncall('cuInit', 0)\nsay('ready')\ninput()"
    with world.program(code) as program:
        assert program.says() == "ready"
        assert world.mempool(*TRAIN, "probe").status == 0
        with world.frozen_driver():
            asks = world.start("mempool", *TRAIN, "probe")
            assert asks.stderr is not None
            assert asks.stderr.readline() == "waiting for the driver's answer...\n"
            program.hears()
            assert program.ends() == (0, "", "")
            _, err = asks.communicate(timeout=SECONDS)
        assert (asks.returncode, err.splitlines()[0]) == (
            5,
            "error: program train ended before it answered [session-died]",
        )


# --- while it lives ---


def test_detaching_leaves_the_program_alone(world: World) -> None:
    with world.program(f"{BINDINGS}\ncall('cuInit', 0)\nsay('ready')\ninput()\nsay('still here')") as program:
        assert program.says() == "ready"
        assert world.mempool(*TRAIN, "grant", "0", "--to", "1").status == 0
        killed = world.mempool(*TRAIN, "session", "stop", "--kill")
        assert (killed.status, killed.out, re.sub(r"\d+", "N", killed.err)) == (
            5,
            "",
            "error: train is a program (pid PID): mempool kills none but its own sessions [session-stop]\n"
            "  try: `kill N` ends it; `mempool --session train session stop` only detaches the agent\n",
        )
        stopped = "program train (pid PID) goes on without its agent\n"
        assert world.mempool(*TRAIN, "session", "stop") == (0, stopped, "")
        assert world.mempool(*TRAIN, "probe") == (5, "", GONE)
        program.hears()
        assert program.says() == "still here"
        assert program.ends() == (0, "", "")


def test_an_agent_comes_and_goes_by_hand(world: World) -> None:
    code = """
import mempool_cli.agent as agent
for name in ("train", "again"):
    print(agent.start(name), flush=True)
    input()
    agent.stop()
    print("stopped", flush=True)
    input()
agent.stop()
try:
    agent.start("no name")
except Exception as error:
    print(error, flush=True)
"""
    with world.program_without_exec(code) as program:
        for name in ("train", "again"):
            assert program.says() == name
            assert world.mempool("--session", name, "session", "status").status == 0
            program.hears()
            assert program.says() == "stopped"
            assert world.left() == []
            program.hears()
        assert program.says() == "'no name' is no name for a session or program"
        assert program.ends() == (0, "", "")


def test_a_client_that_says_nothing_does_not_keep_the_program(world: World) -> None:
    with world.program("print('ready', flush=True)\ninput()") as program:
        assert program.says() == "ready"
        with closing(socket.socket(socket.AF_UNIX)) as client:
            client.connect(str(world.runtime / "gpu-train.socket"))
            client.sendall(b'{"type":"hello"}\n{')
            assert b'"kind":"program"' in client.recv(4096)
            program.hears()
            assert program.ends() == (0, "", "")
    assert world.left() == []


def test_a_session_of_that_name_keeps_it(world: World) -> None:
    assert world.mempool(*TRAIN, "session", "start").status == 0
    try:
        with world.program("print('ready', flush=True)\ninput()") as program:
            assert program.says() == "ready"
            assert program.tells().endswith("): this is its name: another has the shorter one")
            listed = [line.split()[:2] for line in world.mempool("session", "list").out.splitlines()[1:]]
            assert {kind for _, kind in listed} == {"session", "program"}
            program.hears()
            assert program.ends().status == 0
    finally:
        assert world.mempool(*TRAIN, "session", "stop").status == 0
    assert world.left() == []
