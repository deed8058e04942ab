"""`make` on a machine that lacks something: what the user reads, and what is left behind. No pip, no network."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
MAKE = shutil.which("make")
TOOLS = ("cat", "cksum", "env", "mkdir", "rm")

pytestmark = pytest.mark.skipif(MAKE is None, reason="needs make")

GOOD_PYTHON = """#!/bin/sh
case "$*" in
*ensurepip*) echo "$0" ;;
--version) echo Python 3.13.7 ;;
*"-m venv"*) mkdir -p .venv/bin && cat "$0" >.venv/bin/python && chmod +x .venv/bin/python ;;
*"-m pip"*) env >pip-env; echo "pip $*" >>log; exit "$(cat pip-status)" ;;
esac
"""


class Checkout:
    """A copy of the files that `make` reads, and a PATH that holds only what a test puts there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "path"
        self.path.mkdir()
        (root / "scripts").mkdir()
        for name in ("Makefile", "pyproject.toml", "scripts/venv.sh"):
            shutil.copy(PROJECT / name, root / name)
        for name in (*TOOLS, "chmod"):
            found = shutil.which(name)
            assert found
            (self.path / name).symlink_to(found)

    def add(self, name: str, script: str) -> None:
        """Put a program on PATH."""
        file = self.path / name
        file.write_text(script)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        assert MAKE
        return subprocess.run(
            [MAKE, *arguments],
            cwd=self.root,
            env={"PATH": str(self.path), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def installs(self) -> int:
        log = self.root / "log"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    (tmp_path / "pip-status").write_text("0")
    return Checkout(tmp_path)


def own_lines(stderr: str) -> list[str]:
    """Without make's own last word."""
    return [line for line in stderr.splitlines() if not line.startswith("make")]


def test_without_python(checkout: Checkout) -> None:
    done = checkout.make("run-env")
    assert done.returncode == 2
    assert own_lines(done.stderr) == [
        "mempool: needs Python 3.11 or newer, and none of python3.11 to python3.15, python3 on PATH is"
    ]


def test_old_python_and_a_shim_that_only_fails(checkout: Checkout) -> None:
    checkout.add("python3", "#!/bin/sh\nexit 3\n")
    checkout.add("python3.13", "#!/bin/sh\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n")
    done = checkout.make("run-env")
    assert done.returncode == 2
    assert own_lines(done.stderr) == [
        "mempool: needs Python 3.11 or newer, and none of python3.11 to python3.15, python3 on PATH is"
    ]


def test_python_without_venv(checkout: Checkout) -> None:
    checkout.add("python3.12", "#!/bin/sh\nexit 4\n")
    done = checkout.make("run-env")
    assert done.returncode == 2
    assert own_lines(done.stderr) == [
        "mempool: python3.12 lacks the venv module (Debian, Ubuntu: apt install python3-venv)"
    ]


def test_tests_without_a_compiler(checkout: Checkout) -> None:
    checkout.add("python3", GOOD_PYTHON)
    done = checkout.make("test")
    assert done.returncode == 2
    assert own_lines(done.stderr) == [
        "mempool: the tests need a C compiler, and cc is not on PATH (Debian, Ubuntu: apt install gcc libc6-dev)"
    ]
    assert not (checkout.root / ".venv").exists()


def test_takes_the_newest_that_runs(checkout: Checkout) -> None:
    checkout.add("python3.15", "#!/bin/sh\nexit 127\n")
    checkout.add("python3.14", "#!/bin/sh\nexit 4\n")
    checkout.add("python3.13", GOOD_PYTHON)
    checkout.add("python3", "#!/bin/sh\nexit 3\n")
    done = checkout.make("run-env")
    assert (done.returncode, done.stdout, done.stderr) == (0, "mempool: making .venv with Python 3.13.7\n", "")


def test_the_real_interpreter_is_accepted(checkout: Checkout) -> None:
    """The question put to each candidate is right: this Python, from inside its environment, answers with its base."""
    question = (checkout.root / "scripts/venv.sh").read_text().split("about='")[1].split("'\n")[0]
    done = subprocess.run([sys.executable, "-I", "-c", question], capture_output=True, text=True, check=True)
    base = Path(done.stdout.strip())
    assert os.access(base, os.X_OK)
    assert base.parent.resolve() == Path(sys.base_prefix, "bin").resolve()


def test_made_once_and_again_when_moved_changed_or_half_made(checkout: Checkout) -> None:
    checkout.add("python3", GOOD_PYTHON)
    venv = checkout.root / ".venv"
    (venv / "left-over").mkdir(parents=True)
    checkout.make("run-env")
    assert checkout.installs == 1
    assert not (venv / "left-over").exists()

    assert checkout.make("run-env").stdout == ""
    assert checkout.installs == 1

    (venv / "stamp-run").write_text((venv / "stamp-run").read_text().replace(str(checkout.root), "/elsewhere"))
    checkout.make("run-env")
    assert checkout.installs == 2

    with (checkout.root / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    checkout.make("run-env")
    assert checkout.installs == 3


def test_failed_install_leaves_no_environment(checkout: Checkout) -> None:
    checkout.add("python3", GOOD_PYTHON)
    (checkout.root / "pip-status").write_text("1")
    assert checkout.make("run-env").returncode == 2
    assert not (checkout.root / ".venv").exists()


def test_demo_and_test_at_once_make_one_environment(checkout: Checkout) -> None:
    checkout.add("python3", GOOD_PYTHON)
    checkout.add("cc", "#!/bin/sh\n")
    checkout.make("-j4", "dev-env", "run-env")
    assert (checkout.root / "log").read_text() == "pip -I -m pip install -qq -e .[dev]\n"


def test_second_generation_of_bindings_has_its_own_environment(checkout: Checkout) -> None:
    checkout.add("python3", GOOD_PYTHON.replace(".venv/", ".venv-12/"))
    checkout.make("run-env", "BINDINGS=12")
    assert (checkout.root / "log").read_text() == "pip -I -m pip install -qq -e . cuda-bindings==12.*\n"


def test_environment_does_not_mislead_pip(checkout: Checkout) -> None:
    checkout.add("python3", GOOD_PYTHON)
    misleading = {
        "PIP_USER": "1",
        "PIP_TARGET": "/elsewhere",
        "PIP_PREFIX": "/elsewhere",
        "PYTHONPATH": "/elsewhere",
        "PYTHONHOME": "/elsewhere",
        "VIRTUAL_ENV": "/elsewhere",
        "MEMPOOL_SIM": "4",
        "PYTHON": "/elsewhere/python",
        "BINDINGS": "11",
    }
    sources = {"PIP_FIND_LINKS": "/wheels", "PIP_TIMEOUT": "60", "PIP_CERT": "/cert.pem", "PIP_CONSTRAINT": "/c.txt"}
    assert checkout.make("run-env", **misleading, **sources).returncode == 0
    seen = dict(line.split("=", 1) for line in (checkout.root / "pip-env").read_text().splitlines() if "=" in line)
    assert seen["PIP_USER"] == "0"
    assert not {"PIP_TARGET", "PIP_PREFIX", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "MEMPOOL_SIM"} & set(seen)
    assert {name: seen[name] for name in sources} == sources


FAKE_MEMPOOL = """#!/bin/sh
echo "$MEMPOOL_RUNTIME_DIR" >runtime-dir
echo "${MEMPOOL_FORMAT-unset} $*" >>calls
test -d "$MEMPOOL_RUNTIME_DIR"
case "$*" in *"$FAIL_AT"*) exit 4 ;; esac
"""


def demo(checkout: Checkout, fail_at: str) -> subprocess.CompletedProcess[str]:
    checkout.add("mempool", FAKE_MEMPOOL)
    return subprocess.run(
        ["/bin/sh", PROJECT / "scripts/demo.sh"],
        cwd=checkout.root,
        env={"PATH": f"{checkout.path}:{os.defpath}", "MEMPOOL_FORMAT": "json", "FAIL_AT": fail_at},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_demo_shows_each_command_and_leaves_nothing(checkout: Checkout) -> None:
    done = demo(checkout, fail_at="nothing")
    assert (done.returncode, done.stderr) == (0, "")
    shown = [line.removeprefix("$ mempool ") for line in done.stdout.splitlines() if line.startswith("$ ")]
    assert [f"unset {command}" for command in shown] == (checkout.root / "calls").read_text().splitlines()
    assert shown[-1] == "--sim dgx-h200 session stop"
    assert not Path((checkout.root / "runtime-dir").read_text().strip()).exists()


def test_demo_that_fails_says_so_and_stops_its_session(checkout: Checkout) -> None:
    done = demo(checkout, fail_at="probe --matrix")
    assert done.returncode == 4
    assert done.stdout.splitlines()[-1] == "$ mempool --sim dgx-h200 probe --matrix"
    assert (checkout.root / "calls").read_text().splitlines()[-1] == "unset --sim dgx-h200 session stop"
    assert not Path((checkout.root / "runtime-dir").read_text().strip()).exists()
