"""What a program under `mempool exec` starts: interpreters with agents of their own, forks, `mempool` itself."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from .exec_pythons import LIBRARIES, PACKAGE, both, interpreter, outcome, shown
from .worlds import MEMPOOL, PYTHON, World

pytestmark = pytest.mark.standin

REPORT = """
import json, os, sys
def report(*ignored):
    package = sys.modules.get("mempool_cli.agent")
    door = getattr(package, "_door", None)
    return [door and door.name.replace(str(os.getpid()), "PID"), os.environ.get("PYTHONPATH"), sys.path]
"""
CHILD = f"{REPORT}\nprint(json.dumps(report()), flush=True)"
PARENT = f"""
import asyncio, os, shlex, subprocess, sys
child = [sys.executable, "-P", "-c", {CHILD!r}]
async def wait():
    await (await asyncio.create_subprocess_exec(*child)).wait()
"""
MORE = "os.environ['PYTHONPATH'] += ':/more'\n"


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.run(child)",
        "subprocess.run(child, env=os.environ)",
        "subprocess.run(child, env=os.environ.copy())",
        "subprocess.run(child, env={**os.environ, 'X': '1'})",
        "subprocess.run(child, env={**os.environb, b'X': b'1'})",
        "subprocess.run(child, env={**os.environ, 'PYTHONPATH': os.environ['PYTHONPATH'] + ':/more'})",
        "subprocess.run(child, close_fds=False)",
        "subprocess.run(child, close_fds=False, env={**os.environ, 'X': '1'})",
        "subprocess.run(child, start_new_session=True, cwd='/', restore_signals=False)",
        "subprocess.run(shlex.join(child), shell=True)",
        "asyncio.run(wait())",
        "print(os.popen(shlex.join(child)).read())",
        "os.system(shlex.join(child))",
        "os.spawnv(os.P_WAIT, child[0], child)",
        "os.spawnve(os.P_WAIT, child[0], child, os.environ)",
        "os.waitpid(os.posix_spawn(child[0], child, os.environ), 0)",
        "os.waitpid(os.posix_spawnp(child[0], child, dict(os.environ)), 0)",
        MORE + "subprocess.run(child)",
        MORE + "subprocess.run(child, env=os.environ)",
        MORE + "subprocess.run(child, close_fds=False)",
        MORE + "os.system(shlex.join(child))",
        MORE + "os.spawnv(os.P_WAIT, child[0], child)",
        MORE + "os.waitpid(os.posix_spawn(child[0], child, os.environ), 0)",
        "os.environ['X'] = '1'; subprocess.run(child)",
        "os.putenv('X', '1'); subprocess.run(child)",
        "os.chdir('/'); subprocess.run(child)",
    ],
)
def test_a_child_has_an_agent_and_its_own_path(world: World, start: str) -> None:
    under, alone = (shown(done) for done in both(world, *PYTHON, "-c", PARENT + start, options=("--name", "train")))
    assert under == ["train.PID", *alone[1:]]
    assert world.left() == []


@pytest.mark.parametrize(
    "start",
    [
        "os.execv(child[0], child)",
        "os.execl(child[0], *child)",
        "os.execvp(child[0], child)",
        "os.execve(child[0], child, os.environ.copy())",
        "os.execve(path=child[0], argv=child, env={**os.environ, 'X': '1'})",
        "os.execvpe(child[0], child, os.environ)",
        MORE + "os.execve(child[0], child, os.environ)",
        MORE + "os.execv(child[0], child)",
    ],
)
def test_a_program_that_replaces_itself_keeps_its_name(world: World, start: str) -> None:
    under, alone = (shown(done) for done in both(world, *PYTHON, "-c", PARENT + start, options=("--name", "train")))
    assert under == ["train", *alone[1:]]
    assert world.left() == []


@pytest.mark.parametrize(
    "change", ["del os.environ['PYTHONPATH']", "os.environ['PYTHONPATH'] = ''", "os.environ['PYTHONPATH'] = '/other'"]
)
@pytest.mark.parametrize("start", ["subprocess.run(child)", "subprocess.run(child, env=os.environ.copy())"])
def test_a_program_that_changes_its_path(world: World, tmp_path: Path, change: str, start: str) -> None:
    python = interpreter(tmp_path / "env", PACKAGE, *LIBRARIES)
    code = f"{PARENT}{change}\n{start}"
    under, alone = (
        shown(done) for done in both(world, python, "-c", code, options=("--name", "train"), PYTHONPATH="/one")
    )
    assert under == ["train.PID", *alone[1:]]


SEES = "import json, os, sys; print(json.dumps([dict(os.environ), 'mempool_cli.agent' in sys.modules]), flush=True)"


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.run(child, env={})",
        "subprocess.run(child, env={}, close_fds=False)",
        "subprocess.run(child, env={'PATH': os.environ['PATH'], 'PYTHONPATH': '/one'})",
        "subprocess.run(child, env={key: value for key, value in os.environ.items() if 'MEMPOOL_AGENT' not in key})",
        "os.waitpid(os.posix_spawn(child[0], child, {'PYTHONPATH': '/one'}), 0)",
        "os.execve(child[0], child, {})",
    ],
)
def test_an_environment_without_orders_is_left_alone(world: World, start: str) -> None:
    code = f"import os, subprocess, sys\nchild = [sys.executable, '-P', '-c', {SEES!r}]\n{start}"
    under, alone = (shown(done) for done in both(world, *PYTHON, "-c", code))
    assert under == alone
    assert not under[1]


def test_an_environment_that_is_handed_over_is_not_changed(world: World) -> None:
    code = f"""{PARENT}
child = ["true"]
for env in (dict(os.environ), dict(os.environb)):
    before = dict(env)
    subprocess.run(child, env=env)
    subprocess.run(["/bin/true"], env=env, close_fds=False)
    os.waitpid(os.posix_spawn("/bin/true", child, env), 0)
    os.spawnve(os.P_WAIT, "/bin/true", child, env)
    print(env == before)
print(dict(os.environb) == before)
"""
    assert world.python(code) == (0, "True\nTrue\nTrue\n", "")


@pytest.mark.parametrize(
    "code",
    [
        "subprocess.run([sys.executable, '-c', ''], env={'A': 1})",
        "subprocess.run([sys.executable, '-c', ''], env={'A\\0': '1'})",
        "subprocess.run([sys.executable, '-c', ''], env={'A=': '1'})",
        "subprocess.run(['nosuchcmd'], env=os.environ)",
        "os.execve('nosuchcmd', ['nosuchcmd'], os.environ)",
        "os.execve('/bin/true', ['true'], {'A': 1})",
        "os.execve('/bin/true', ['true'], [])",
        "os.execve('/bin/true', ['true'])",
        "os.posix_spawn('/bin/true', ['true'], 1)",
        "os.posix_spawn('/bin/true', ['true'])",
    ],
)
def test_a_wrong_call_ends_as_it_does_by_itself(world: World, code: str) -> None:
    code = f"""
import os, subprocess, sys
try:
    {code}
except Exception as error:
    print(type(error).__name__, getattr(error, "errno", None), getattr(error, "filename", None))
"""
    under, alone = both(world, *PYTHON, "-c", code)
    assert under == alone
    assert alone.out


@pytest.mark.parametrize(
    "work",
    [
        """
        queue = context.SimpleQueue()
        process = context.Process(target=put, args=(queue,))
        process.start()
        found = [queue.get()]
        process.join()
        """,
        """
        with context.Pool(2) as pool:
            found = pool.map(report, range(2), 1)
            pool.close()
            pool.join()
        """,
        """
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            found = list(pool.map(report, range(2)))
        """,
    ],
    ids=["Process", "Pool", "ProcessPoolExecutor"],
)
def test_multiprocessing_by_spawn(world: World, tmp_path: Path, work: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"""{REPORT}
import concurrent.futures, multiprocessing
def put(queue):
    queue.put(report())
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    if True:
        {work.strip()}
    print(json.dumps(found))
""")
    under, alone = (shown(done) for done in both(world, sys.executable, str(script), options=("--name", "train")))
    assert under == [["train.PID", *report[1:]] for report in alone]
    assert world.left() == []


def test_a_child_that_is_killed_as_it_starts_leaves_nothing(world: World) -> None:
    """As a multiprocessing.Pool does with workers that it needs no more."""
    code = """
import os, subprocess, sys
child = '''
import os
from mempool_cli.agent.door import Door
Door._write_journal = lambda door: os.kill(os.getpid(), 9)
from mempool_cli.agent import start
start("train")
'''
environment = {key: value for key, value in os.environ.items() if not key.startswith("MEMPOOL_AGENT")}
print(subprocess.run([sys.executable, "-c", child], env=environment).returncode)
"""
    assert world.python(code, "--name", "train") == (0, "-9\n", "")
    assert world.left() == []


def test_mempool_and_the_resource_tracker_start_no_agent(world: World) -> None:
    code = f"""
import os, subprocess
from multiprocessing import resource_tracker
resource_tracker.ensure_running()
print(len(os.listdir("/proc/self/task")), flush=True)
subprocess.run({[*MEMPOOL, "--format", "json", "session", "list"]})
subprocess.run({[*MEMPOOL, "--session", "train", "session", "status"]}, env=os.environ.copy())
"""
    done = world.python(code, "--name", "train")
    threads, listed, status, *_ = done.out.splitlines()
    assert (done.status, done.err, threads) == (0, "", "2")
    assert [entry["name"] for entry in json.loads(listed)["data"]["sessions"]] == ["train"]
    assert status == "program train runs (pid PID)"
    assert world.left() == []


def names(world: World) -> list[str]:
    """The hosts that `session list` shows, sorted."""
    listed = json.loads(world.mempool("--format", "json", "session", "list").out)
    return sorted(entry["name"] for entry in listed["data"]["sessions"])


FORK = """
import os, signal, sys
print("ready", flush=True)
input()
begun, go_on = os.pipe()
pid = os.fork()
if not pid:
    os.close(go_on)
    print("child", len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), flush=True)
    os.read(begun, 1)
    sys.exit(3)
input()
os.close(go_on)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
input()
"""


@pytest.mark.parametrize("asked", [False, True], ids=["at rest", "at work"])
def test_a_fork_has_no_agent_and_leaves_the_program_its_own(world: World, asked: bool) -> None:
    alone = outcome(world, *PYTHON, "-c", FORK, stdin=b"\n\n\n").out.decode().splitlines()
    with world.program(FORK) as program:
        assert program.says() == "ready"
        if asked:
            assert names(world) == ["train"]
        program.hears()
        assert program.says() == alone[1]
        assert names(world) == ["train"]
        program.hears()
        assert program.says() == "3"
        status = world.mempool("--session", "train", "session", "status")
        assert (status.status, status.out.splitlines()[0]) == (0, "program train runs (pid PID)")
        assert program.ends().status == 1
    assert world.left() == []


def test_a_fork_that_outlives_the_program_does_not_keep_its_name(world: World) -> None:
    code = """
import os, sys
forked, done = os.pipe()
if os.fork():
    os.read(forked, 1)
    os._exit(0)
print("forked", flush=True)
os.write(done, b"1")
input()
"""
    with world.program(code) as program:
        assert program.says() == "forked"
        assert program.process.wait(30) == 0
        assert world.is_tidied()
        own = "import sys; print(sys.modules['mempool_cli.agent']._door.name)"
        assert world.python(own, "--name", "train") == (0, "train\n", "")
        program.hears()
        assert program.ends() == (0, "", "")


@pytest.mark.parametrize("warnings", ["error", "always", "default"])
@pytest.mark.parametrize("threads", [0, 1])
def test_a_fork_warns_as_in_the_program_alone(world: World, threads: int, warnings: str) -> None:
    """Since Python 3.12 it does when there is another thread: the agent's is none of the program's."""
    code = f"""
import os, threading
gate = threading.Event()
others = [threading.Thread(target=gate.wait) for _ in range({threads})]
for other in others:
    other.start()
for _ in range(2):
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
gate.set()
"""
    ends = both(world, *PYTHON, "-W", warnings, "-c", code)
    under, alone = (end._replace(err=re.sub(rb"pid=\d+", b"pid=PID", end.err)) for end in ends)
    assert under == alone


def test_a_fork_may_start_an_agent_of_its_own(world: World) -> None:
    code = """
import os, sys
import mempool_cli.agent
pid = os.fork()
if not pid:
    print(mempool_cli.agent.start("worker"), flush=True)
    input()
    sys.exit()
os.waitpid(pid, 0)
"""
    with world.program(code) as program:
        assert program.says() == "worker"
        assert names(world) == ["train", "worker"]
        program.hears()
        assert program.ends() == (0, "", "")
    assert world.left() == []


def test_a_launcher_and_its_workers(world: World) -> None:
    worker = "from cuda.bindings import driver; driver.cuInit(0); print('up', flush=True); input()"
    code = f"""
import os, subprocess, sys
worker = [sys.executable, "-P", "-c", {worker!r}]
def start(rank):
    return subprocess.Popen(worker, env={{**os.environ.copy(), "LOCAL_RANK": str(rank)}}, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
workers = [start(rank) for rank in range(2)]
for each in workers:
    assert each.stdout.readline() == "up\\n"
print(*(each.pid for each in workers), flush=True)
input()
for each in workers:
    each.communicate("\\n")
"""
    with world.program(code) as program:
        pids = program.says().split()
        assert names(world) == ["train", *sorted(f"train.{pid}" for pid in pids)]
        for pid in pids:
            assert world.mempool("--session", f"train.{pid}", "probe", "0") == (
                0,
                "pool       kind             on  access\n"
                "default:0  default,current  0   owner 0; none 1-3\n"
                "\n"
                f"as program train.{pid} (pid PID) sees it; other processes have pools of their own\n",
                "",
            )
        assert world.mempool("--session", "train", "probe", "0").status == 3
        program.hears()
        done = program.ends()
        assert (done.status, done.out) == (0, "")
    assert world.left() == []
