from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import IO

import pytest

from mempool_cli.errors import MempoolError, Problem
from mempool_cli.model import Answer, Event
from mempool_cli.render import Output, emit, print_event, print_problem

from render_samples import MATRIX, TABLE, answer, emitted, everything, out_of, square

HERE = Path(__file__).parent
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(shown: Answer, columns: int, output: Output = MATRIX) -> str:
    """What a terminal of that many columns receives."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    chunks: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(master, 65536):
                chunks.append(chunk)
        except OSError:  # EIO: the other end is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(slave, "w", encoding="utf-8") as terminal, redirect_stdout(terminal):
        emit("probe", shown, output=output)
    reader.join()
    os.close(master)
    return b"".join(chunks).decode().replace("\r\n", "\n")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_terminal_of_80_columns() -> None:
    shown = on_terminal(answer(square(16)), 80)
    text = ESCAPE.sub("", shown)
    assert shown != text
    assert text.startswith("""\
pool        kind             on  host  0    1    2    3    4    5    6    7
default:0   default,current  0   -     own  RW   -    -    -    -    -    -
""")
    assert (
        """
pool        8    9    10   11   12   13   14   15
default:0   -    -    -    -    -    -    -    -
"""
        in text
    )
    assert max(map(len, text.splitlines())) <= 80


def test_a_terminal_that_does_not_know_its_width_counts_as_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    assert on_terminal(answer(square(16)), 0) == on_terminal(answer(square(16)), 80)


def test_a_wide_terminal_shows_what_a_pipe_gets() -> None:
    assert ESCAPE.sub("", on_terminal(answer(square(16)), 1000)) == out_of(answer(square(16)), MATRIX)


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_where_none_is_wanted(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert "\x1b" not in on_terminal(answer(square(2)), 80)
    assert "\x1b" in on_terminal(answer(square(2)), 80, MATRIX._replace(color="always"))


def test_an_empty_no_color_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    assert "\x1b" in on_terminal(answer(square(2)), 80)


def test_color_never_on_a_terminal() -> None:
    assert "\x1b" not in on_terminal(answer(square(2)), 80, MATRIX._replace(color="never"))


def test_color_always_in_a_pipe_only_adds() -> None:
    _, plain, plain_err = emitted(answer(everything()), MATRIX)
    _, out, err = emitted(answer(everything()), MATRIX._replace(color="always"))
    assert out.splitlines()[2].startswith("default:1  default          1       -     \x1b[36mR\x1b[0m")
    assert err.startswith("\x1b[1;31merror:\x1b[0m 1 of 24 cells")
    assert (ESCAPE.sub("", out), ESCAPE.sub("", err)) == (plain, plain_err)


def run(script: str, *, env: dict[str, str] | None = None, stdout: int | IO[bytes] = subprocess.PIPE,
        shell: str = '"$@"') -> subprocess.CompletedProcess[bytes]:  # fmt: skip
    """Runs the script in a fresh interpreter; `shell` may redirect what `"$@"` stands for."""
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{HERE.parents[1]}:{HERE}", **(env or {})}
    return subprocess.run(
        ["sh", "-c", shell, "sh", sys.executable, "-W", "error", "-c", script],
        env=clean,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


FAILING = """
import sys
from mempool_cli.errors import MempoolError
from mempool_cli.exit_status import READER_GONE
from mempool_cli.model import AccessChange, Notice
from mempool_cli.render import Output, emit, print_event, print_problem
from render_samples import DEFAULT, SESSION, answer, everything, square
granted = AccessChange(pool=DEFAULT, granted=(1,), set_access_calls=1, warnings=(Notice("odd", "odd"),))
try:
    sys.exit(emit("grant", answer({shown}, SESSION), output=Output({output})))
except BrokenPipeError:
    sys.exit(READER_GONE)
except MempoolError as error:
    print_problem(error.problem)
    sys.exit(error.problem.exit)
"""
REPORT = """\
error: could not write the result: No space left on device [output]
  try: the change itself was made: look with `mempool list`
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(("output", "err"), [("", f"warning: odd [odd]\n{REPORT}"), ("format='json'", REPORT)])
def test_a_full_disk_is_one_error_and_nothing_at_exit(output: str, err: str) -> None:
    done = run(FAILING.format(shown="granted", output=output), shell='"$@" >/dev/full')
    assert (done.returncode, done.stderr.decode()) == (74, err)


def test_a_reader_that_goes_away() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as stdout:
        done = run(FAILING.format(shown="square(64)", output="matrix=True"), stdout=stdout)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_closed_stdout() -> None:
    done = run(FAILING.format(shown="square(2)", output=""), shell='"$@" >&-')
    assert (done.returncode, done.stderr) == (
        74,
        b"error: could not write the result: the stream is closed [output]\n",
    )


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_a_stderr_that_takes_nothing_is_no_failure(redirect: str) -> None:
    done = run(FAILING.format(shown="granted", output=""), shell=f'"$@" {redirect}')
    assert done.returncode == 0
    assert done.stdout.startswith(b"pool default:0: access granted to device 1 ")


def test_a_closed_stderr_in_process() -> None:
    closed = StringIO()
    closed.close()
    with redirect_stderr(closed):
        print_event(Event("trace", "cuInit() = 0"))
        print_problem(Problem(code="usage", message="no"))


def test_a_closed_stdout_in_process() -> None:
    closed = StringIO()
    closed.close()
    with redirect_stdout(closed), pytest.raises(MempoolError, match="could not write the result"):
        emit("probe", answer(square(2)), output=TABLE)


def test_events_go_to_stderr() -> None:
    with redirect_stderr(StringIO()) as err:
        print_event(Event("status", "waiting\x1b"))
    assert err.getvalue() == "waiting\\x1b\n"


NAMES = """
from mempool_cli.model import AccessMatrix, Notice
from mempool_cli.render import Output, emit
from render_samples import answer, cell, device, pool, row
odd = device(0, name="caf\\u00e9 \\u5361 \\udcf8\\udcff")
shown = AccessMatrix(
    devices=(odd,), rows=(row(pool("p"), cell(0, "rw", owner=True)),), warnings=(Notice("odd", odd.name),)
)
emit("probe", answer(shown), output=Output(matrix=True))
"""


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"PYTHONIOENCODING": "ascii"}, rb"caf\xe9 \u5361 \xf8\xff"),
        ({"PYTHONIOENCODING": "cp1252"}, b"caf\xe9 " + rb"\u5361 \xf8\xff"),
        ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, rb"caf\xe9 \u5361 \xf8\xff"),
        ({"LC_ALL": "C"}, "caf\u00e9 \u5361 ".encode() + rb"\xf8\xff"),
    ],
)
def test_encodings(env: dict[str, str], name: bytes) -> None:
    done = run(NAMES, env=env)
    assert done.returncode == 0
    assert b"\n0       " + name + b"  0000:19:00.0  GPU-" in done.stdout
    assert done.stderr == b"warning: " + name + b" [odd]\n"


LAZY = """
import sys
import mempool_cli.render as render
from mempool_cli.model import Answer, Event
assert "rich" not in sys.modules
from render_samples import everything
render.emit("probe", Answer(result=everything()), output=render.Output(format="json"))
render.print_event(Event("trace", "x"))
assert "rich" not in sys.modules
"""


def test_json_and_the_import_load_no_rich() -> None:
    done = run(LAZY)
    assert (done.returncode, done.stderr) == (0, b"x\n")
