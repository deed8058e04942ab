"""`mempool exec`: the program runs as it would by itself, and is reached under its name."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from mempool_cli.agent.orders import SITE, Orders

from .exec_pythons import EXEC, LIBRARIES, PACKAGE, both, interpreter, outcome, shown
from .worlds import MEMPOOL, PYTHON, World

pytestmark = pytest.mark.standin

NO_AGENT = (
    "mempool: no agent: no Python interpreter took it up (the program is not Python, or runs with -S, -I or -E);"
    " pools could not be seen or set\n"
)
OWN_NAME = "import sys; print(sys.modules['mempool_cli.agent']._door.name)"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os._exit(8)", 8),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
    ],
)
def test_the_exit_status_is_the_program_s(world: World, code: str, status: int) -> None:
    assert world.python(code) == (status, "", "")
    assert world.left() == []


@pytest.mark.parametrize(
    ("command", "status", "why"),
    [("nosuchcmd", 127, "No such file or directory"), ("/", 126, "Permission denied")],
)
def test_a_command_that_cannot_be_run(world: World, command: str, status: int, why: str) -> None:
    assert world.mempool("exec", "--", command) == (status, "", f"error: {command} cannot be run: {why}\n")
    assert world.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_program_once(world: World, number: signal.Signals) -> None:
    code = f"""
import os, signal
# No print: it may come into the other one.
signal.signal({int(number)}, lambda number, frame: os.write(1, f"caught {{number}}\\n".encode()))
print("ready", flush=True)
input()
raise SystemExit(5)
"""
    with world.program(code) as program:
        assert program.says() == "ready"
        program.process.send_signal(number)
        assert program.says() == f"caught {int(number)}"
        program.hears()
        assert program.ends() == (5, "", "")


@pytest.mark.parametrize(
    ("number", "status", "err"),
    [
        (signal.SIGINT, 130, "Traceback (most recent call last):"),
        (signal.SIGTERM, 143, ""),
    ],
)
def test_a_signal_that_the_program_does_not_catch(world: World, number: signal.Signals, status: int, err: str) -> None:
    code = """
import signal
print("ready", flush=True)
signal.pause()
"""
    with world.program(code) as program:
        assert program.says() == "ready"
        program.process.send_signal(number)
        done = program.ends()
    assert (done.status, done.out, done.err.partition("\n")[0]) == (status, "", err)
    assert done.err.endswith("KeyboardInterrupt\n" if err else "")
    assert world.left() == []


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4096)",
        "import sys; sys.stderr.buffer.write(b'\\xff\\n'); sys.exit('an end')",
        "import sys; print('said'); sys.stdout.close()",
        "import os; os.close(1)",
        "import os; print('lost'); os.close(1)",
        "import os; os.close(0); os.close(1); os.close(2)",
        "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())",
        "1 / 0",
        "this is no Python",
    ],
)
def test_the_streams_are_the_program_s_byte_by_byte(world: World, code: str) -> None:
    under, alone = both(world, *PYTHON, "-c", code, stdin=b"\x80\r\n\0" * 50_000)
    assert under == alone


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_from_the_start(world: World, stream: str) -> None:
    program = """
import os, sys
print(*(stream is None for stream in (sys.stdin, sys.stdout, sys.stderr)), sorted(os.listdir("/proc/self/fd")))
"""
    shell = ["sh", "-c", f'"$@" {stream}', "sh"]
    command = [*PYTHON, "-c", program]
    under, alone = outcome(world, *shell, *EXEC, "--", *command), outcome(world, *shell, *command)
    assert (under.status, under.err) == (alone.status, alone.err)
    assert under.out.partition(b"[")[0] == alone.out.partition(b"[")[0]


SEEN = """
import sys
modules, finders = list(sys.modules), list(sys.path_importer_cache)
import gc, json, os, signal, threading, warnings
print(json.dumps({
    "modules": sorted(modules),
    "finders": finders,
    "environment": dict(os.environ),
    "path": sys.path,
    "flags": repr(sys.flags),
    "argv": [sys.argv, sys.orig_argv, sys.warnoptions, sys._xoptions],
    "hooks": [repr(hook) for hook in (*sys.meta_path, sys.excepthook, sys.unraisablehook, sys.displayhook)],
    "threads": [threading.active_count(), [thread.name for thread in threading.enumerate()]],
    "main thread": threading.current_thread() is threading.main_thread(),
    "signals": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "warnings": [repr(entry) for entry in warnings.filters],
    "gc": [gc.isenabled(), gc.get_threshold()],
    "here": [os.getcwd(), os.getpgid(0) == os.getpgid(os.getppid())],
}))
"""
AGENT_MODULES = {
    *("__future__", "_posixsubprocess", "_socket", "fcntl", "select"),
    *("mempool_cli", "mempool_cli.agent", "mempool_cli.agent.children", "mempool_cli.agent.door"),
    *("mempool_cli.agent.named", "mempool_cli.agent.orders", "mempool_cli.session", "mempool_cli.session.files"),
    *("mempool_cli.session.listening", "mempool_cli.session.lock"),
    *("atexit", "importlib", "importlib._bootstrap", "importlib._bootstrap_external", "importlib.machinery"),
    "warnings",
    *("mempool_cli.agent.bindings", "mempool_cli.agent.claim", "mempool_cli.agent.descriptors"),
    # before Python 3.13: what `threading` brings
    *("threading", "_weakrefset", "_thread", "functools", "_functools", "itertools", "operator", "_operator"),
    *("_xxsubinterpreters", "collections", "_collections", "reprlib", "keyword", "types"),
}


@pytest.mark.parametrize(
    "path", [None, "", "/one", "/one:/two:/one", ":/one", "/one:"], ids=["unset", "empty", "1", "3", "cwd-1", "1-cwd"]
)
def test_the_program_sees_what_it_sees_by_itself(world: World, tmp_path: Path, path: str | None) -> None:
    python = interpreter(tmp_path / "env", PACKAGE, *LIBRARIES)
    command = [python, "-c", SEEN, "an", "argument"]
    under, alone = (shown(done) for done in both(world, *command, PYTHONPATH=path, LC_ALL="C.UTF-8"))
    ordered = {key for key in under["environment"] if key.startswith("MEMPOOL_AGENT")}
    assert ordered
    assert {key: value for key, value in under["environment"].items() if key not in ordered} == alone["environment"]
    assert SITE not in under["finders"]
    assert set(under["modules"]) - set(alone["modules"]) <= AGENT_MODULES
    for varying in ("environment", "finders", "modules"):
        del under[varying], alone[varying]
    assert under == alone


@pytest.mark.parametrize("locale", [None, "C", "POSIX"])
def test_the_locale_is_the_program_s(world: World, locale: str | None) -> None:
    """A Python in the C locale sets LC_CTYPE: not for the program of `exec`, which has modes of its own then."""
    report = 'echo "${LC_CTYPE-unset}"; exec "$0" -P -c "import sys; print(sys.flags)"'
    under, alone = both(world, "sh", "-c", report, sys.executable, LC_CTYPE=locale)
    assert under == alone


def test_a_strict_interpreter_has_nothing_to_say(world: World) -> None:
    strict = ["-X", "dev", "-W", "error", "-bb", "-O"]
    assert world.mempool("exec", "--", *PYTHON, *strict, "-c", OWN_NAME) == (0, "program\n", "")


@pytest.mark.parametrize("held", ["Blk", "Ign"])
def test_no_signal_is_held_or_ignored_that_was_not_before(world: World, held: str) -> None:
    """Python ignores some, and `exec` holds others; the two that glibc keeps for itself, 32 and 33, are left out."""
    under, alone = both(world, "sed", "-n", rf"s/^Sig{held}:.*\(........\)$/\1/p", "/proc/self/status")
    assert int(under.out, 16) & 0x7FFFFFFF == int(alone.out, 16) & 0x7FFFFFFF


@pytest.mark.parametrize(
    "code",
    [
        "import os, sys; print(__file__, __name__, os.environ.get('PYTHONPATH'), sys.path); os.environ['SET'] = '1'",
        "raise ValueError('out')",
        "import nosuchmodule",
        "import sys; sys.path.append('/added')",
    ],
)
def test_the_program_s_own_sitecustomize(world: World, tmp_path: Path, code: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(code)
    path = os.pathsep.join([str(tmp_path), world.environment["PYTHONPATH"]])
    report = "import os, sys; print(os.environ.get('SET'), sys.modules.get('sitecustomize'), sys.path)"
    under, alone = both(world, *PYTHON, "-c", report, PYTHONPATH=path)
    assert under == alone


@pytest.mark.parametrize(
    "command",
    [
        *([sys.executable, flag, "-c", "raise SystemExit(3)"] for flag in ("-S", "-I", "-E")),
        ["sh", "-c", "exit 3"],
        ["sh", "-c", "kill $$"],
        ["true"],
    ],
    ids=["-S", "-I", "-E", "sh", "kill", "true"],
)
def test_a_program_in_which_there_is_no_agent(world: World, command: list[str]) -> None:
    under, alone = both(world, *command)
    assert under == (alone.status, b"", NO_AGENT.encode())
    assert world.left() == []


@pytest.mark.parametrize(
    "words", [["mempool"], ["/data/mempool"], ["mempool_cli"], ["multiprocessing.resource_tracker"]]
)
def test_a_program_s_arguments_do_not_keep_the_agent_away(world: World, tmp_path: Path, words: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(OWN_NAME)
    assert world.mempool("exec", "--", sys.executable, str(script), *words) == (0, "program\n", "")


def test_a_script_starts_the_program(world: World) -> None:
    assert world.mempool("exec", "--", "sh", "-c", '"$0" -P -c "$1"; exit 4', sys.executable, OWN_NAME) == (
        4,
        "program\n",
        "",
    )


def remark(python: str, why: str) -> str:
    return f"mempool: no agent in this interpreter ({python}): {why}\n"


def test_an_interpreter_without_mempool(world: World, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env")
    done = outcome(world, *EXEC, "--", python, "-c", "print(1); raise SystemExit(7)", PYTHONPATH=None)
    why = remark(python, "ModuleNotFoundError: No module named 'mempool_cli'")
    assert done == (7, b"1\n", why.encode())
    assert world.left() == []


def test_an_interpreter_without_bindings(world: World, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env", PACKAGE)
    done = outcome(world, *EXEC, "--", python, "-c", "raise SystemExit(7)", PYTHONPATH=None)
    why = "ImportError: NVIDIA's bindings are not installed: pip install 'cuda-bindings>=12.9,<14'"
    assert done == (7, b"", remark(python, why).encode())


def test_an_interpreter_with_old_bindings(world: World, tmp_path: Path) -> None:
    bindings = tmp_path / "cuda" / "bindings"
    bindings.mkdir(parents=True)
    (bindings / "__init__.py").write_text("")
    (bindings / "_version.py").write_text("__version__ = version = '12.6.0'\n")
    path = os.pathsep.join([str(tmp_path), world.environment["PYTHONPATH"]])
    why = "ImportError: NVIDIA's bindings are 12.6.0, and have to be 12.9 or newer"
    assert world.python("print(1)", PYTHONPATH=path) == (0, "1\n", remark(sys.executable, why))


def test_an_interpreter_with_another_mempool(world: World) -> None:
    path = os.pathsep.join([SITE, world.environment["PYTHONPATH"]])
    orders = Orders("train", version="0.0.1").variables()
    done = world.run(*PYTHON, "-c", "print(1)", PYTHONPATH=path, **orders)
    assert (done.status, done.out) == (0, "1\n")
    why = r"RuntimeError: `mempool exec` is 0\.0\.1, and here is mempool [0-9.]+\n"
    assert re.fullmatch(re.escape(remark(sys.executable, "").removesuffix("\n")) + why, done.err)
    assert world.left() == []


def test_an_interpreter_of_another_environment(world: World, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env", PACKAGE, *LIBRARIES)
    look = [*MEMPOOL, "--session", "train", "session", "status"]
    code = f"import os, subprocess; subprocess.run({look!r}, env={world.environment!r}, check=True)"
    done = outcome(world, *EXEC, "--name", "train", "--", python, "-c", code, PYTHONPATH=None)
    assert (done.status, done.err) == (0, b"")
    assert done.out.startswith(b"program train runs (pid ")


@pytest.mark.parametrize(
    ("words", "variables", "name"),
    [
        (["exec"], {}, "program"),
        (["exec", "--name", ""], {}, "program"),
        (["exec", "--name", "a"], {"MEMPOOL_SESSION": "b"}, "a"),
        (["exec"], {"MEMPOOL_SESSION": "b"}, "program"),
        (["--session", "c", "exec"], {}, "c"),
    ],
)
def test_the_name(world: World, words: list[str], variables: dict[str, str], name: str) -> None:
    assert world.mempool(*words, "--", *PYTHON, "-c", OWN_NAME, **variables) == (0, f"{name}\n", "")


def test_two_programs_of_one_name(world: World) -> None:
    code = "import os; print(os.getpid(), flush=True); input()"
    with ExitStack() as programs:
        first = programs.enter_context(world.program(code))
        pids = [first.says()]
        second = programs.enter_context(world.program(code))
        pids.append(second.says())
        other = f"train.{pids[1]}"
        for name in ("train", other):
            status = world.mempool("--session", name, "session", "status")
            assert (status.status, status.err) == (0, "")
            assert status.out.startswith(f"program {name} runs (pid PID)\n")
        listed = json.loads(world.mempool("--format", "json", "session", "list").out)
        found = [(entry["name"], str(entry["pid"])) for entry in listed["data"]["sessions"]]
        assert found == [("train", pids[0]), (other, pids[1])]
        first.hears()
        assert first.ends() == (0, "", "")
        second.hears()
        told = f"mempool: program {other} (pid PID): this is its name: another has the shorter one\n"
        assert second.ends() == (0, "", told)
    assert world.left() == []


def test_the_longest_name_and_a_killed_child(world: World) -> None:
    code = (
        "import os, subprocess, sys; subprocess.run([sys.executable, '-P', '-c', 'import os; os.kill(os.getpid(), 9)'])"
    )
    assert world.python(code, "--name", "n" * 64).status == 0
    assert world.left() == []


WRONG_GRANTS = ("0", "0:", ":1", "x:1", "0:x", "0:1,,2", "0:1,", "0:1 2", "")


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["--sim", "4", "exec"], 2, "no --sim"),
        (["exec", "--name", "a b"], 2, "'a b' is no name"),
        *((["exec", "--grant", value], 2, "Invalid value for '--grant': ") for value in WRONG_GRANTS),
        (
            ["exec", "--probe-at-exit", "missing/matrix"],
            74,
            "the matrix cannot be written to missing/matrix: there is no directory /",
        ),
        (
            ["exec", "--probe-at-exit", "."],
            74,
            "nothing was run: the matrix cannot be written to .: it is a directory",
        ),
        (["exec", "--probe-at-exit", ""], 2, "the name of the file is empty"),
    ],
)
def test_a_wrong_command_line_runs_nothing(
    world: World, tmp_path: Path, words: list[str], status: int, why: str
) -> None:
    mark = tmp_path / "mark"
    done = world.mempool(*words, "--", "touch", str(mark))
    assert (done.status, done.out) == (status, "")
    assert why in done.err
    assert not mark.exists()
    assert world.left() == []


@pytest.mark.parametrize("words", [["exec"], ["exec", "--name", "a"], ["exec", "--"]])
def test_no_command(world: World, words: list[str]) -> None:
    done = world.mempool(*words)
    assert (done.status, done.out) == (2, "")
    assert "Missing argument 'CMD...'" in done.err


def test_orders_are_for_the_program_alone(world: World) -> None:
    """What a killed or an outer `mempool exec` ordered is not there any more."""
    code = "import os; print(*(os.environ[f'MEMPOOL_AGENT{end}'] for end in ('', '_GRANT', '_MATRIX_FILE')), sep=',')"
    outer = {"MEMPOOL_AGENT": "outer", "MEMPOOL_AGENT_GRANT": "0:1", "MEMPOOL_AGENT_OTHER": "1"}
    assert world.python(code + "; assert 'MEMPOOL_AGENT_OTHER' not in os.environ", **outer) == (0, "program,,\n", "")


def test_exec_in_exec(world: World) -> None:
    code = f"import subprocess; subprocess.run({[*MEMPOOL, 'exec', '--name', 'in', '--', *PYTHON, '-c', OWN_NAME]!r})"
    assert world.mempool(
        "exec", "--name", "out", "--", *MEMPOOL, "exec", "--name", "in", "--", *PYTHON, "-c", OWN_NAME
    ) == (
        0,
        "in\n",
        "",
    )
    assert world.python(code, "--name", "out") == (0, "in\n", "")
    assert world.left() == []


def test_an_interpreter_in_the_interpreter_has_no_agent(world: World) -> None:
    code = """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
interpreters.run_string(interpreters.create(), "import sys; print('mempool_cli.agent' in sys.modules)")
"""
    assert world.python(code) == (0, "False\n", "")
