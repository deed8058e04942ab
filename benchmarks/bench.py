"""How fast is it? Whole processes, taken in turn in one run; medians, and the ratio to what the work costs anyway.

`make bench`. The rows about hardware are there where a GPU is.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from standin.stand_in import COMPILER, HERE, StandIn, compile_c, machine_environment

PYTHON = sys.executable
_INSTALLED = Path(sys.executable).with_name("mempool")
MEMPOOL = [str(_INSTALLED)] if _INSTALLED.exists() else [PYTHON, "-P", "-m", "mempool_cli"]
IMPORT_CLICK = [PYTHON, "-c", "import click"]
CU_INIT = [PYTHON, "-c", "from cuda.bindings import driver; assert not driver.cuInit(0)[0]"]
CELLS = """\
from cuda.bindings import driver as d
assert not d.cuInit(0)[0]
count = d.cuDeviceGetCount()[1]
for owner in range(count):
    pool = d.cuDeviceGetDefaultMemPool(owner)[1]
    for device in range(count):
        place = d.CUmemLocation()
        place.type, place.id = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, device
        d.cuMemPoolGetAccess(pool, place)
"""
CUDA_CORE = """\
from cuda.core import Device, DeviceMemoryResource
device = Device(0)
device.set_current()
print(DeviceMemoryResource(device).peer_accessible_by)
"""
TORCH = "import torch; print(torch.cuda.can_device_access_peer(0, 0))"
MACHINES = (8, 64, 256, 1024)


class Task(NamedTuple):
    """A command, what it is compared with, and the ratio that it aims at."""

    name: str
    command: Sequence[str]
    against: Sequence[str] | None = None
    aim: float | None = None
    environment: Mapping[str, str] = {}
    before: Sequence[str] | None = None
    ends: Sequence[int] = (0,)


def seconds(command: Sequence[str], environment: Mapping[str, str], ends: Sequence[int] = (0,)) -> float:
    """How long it takes; it must end with one of these statuses."""
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode not in ends:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return time.perf_counter() - begin


def measured(task: Task, rounds: int) -> tuple[float, float | None]:
    """The medians of the command and of what it is compared with, taken in turn."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        if task.before:
            seconds(task.before, task.environment)
        ours.append(seconds(task.command, task.environment, task.ends))
        if task.against:
            theirs.append(seconds(task.against, task.environment))
    return statistics.median(ours), statistics.median(theirs) if theirs else None


def show(task: Task, rounds: int) -> float:
    """One line; the median in seconds."""
    ours, theirs = measured(task, rounds)
    ratio = f"{ours / theirs:5.2f}" if theirs else "     "
    aim = f"  aim {task.aim}" if task.aim else ""
    against = f"{theirs * 1e3:8.0f} ms" if theirs else " " * 11
    print(f"{task.name:<44}{ours * 1e3:8.0f} ms {against}  {ratio}{aim}", flush=True)
    return ours


# --- without a GPU ---


def started() -> Iterator[Task]:
    for words, aim in (("--version", 1.4), ("--help", 1.4), ("grant --help", 1.4)):
        yield Task(f"mempool {words} / import click", [*MEMPOOL, *words.split()], IMPORT_CLICK, aim)


def in_a_session(environment: Mapping[str, str]) -> Iterator[Task]:
    sim = [*MEMPOOL, "--sim", "8"]
    stop = [*sim, "session", "stop"]
    yield Task("session start", [*sim, "session", "start"], environment=environment, before=[PYTHON, "-c", STOP])
    probe = [*sim, "probe", "--matrix", "--format", "json"]
    yield Task("probe in a session / import click", probe, IMPORT_CLICK, 1.6, environment)
    grant = [*sim, "grant", "0", "--to", "all"]
    revoke = [*sim, "revoke", "0", "--from", "all"]
    yield Task("grant in a session / import click", grant, IMPORT_CLICK, None, environment, before=revoke)
    yield Task("session stop", stop, environment=environment, before=[*sim, "session", "start"])


STOP = f"import subprocess; subprocess.run({[*MEMPOOL, '--sim', '8', 'session', 'stop']!r}, capture_output=True)"


def simulated(rounds: int) -> None:
    """Growth by the cell: the matrix is n * n."""
    spent: dict[int, float] = {}
    for devices in MACHINES:
        probe = [*MEMPOOL, "--sim", str(devices), "--no-session", "probe", "--matrix"]
        spent[devices] = show(
            Task(f"probe --matrix, {devices} simulated devices", probe), 3 if devices > 256 else rounds
        )
    for small, large in pairwise(MACHINES):
        cell = (spent[large] - spent[small]) / (large**2 - small**2)
        print(f"    from {small} to {large} devices: {cell * 1e6:.2f} us a cell")


def others(environment: Mapping[str, str]) -> Iterator[Task]:
    nothing = [PYTHON, "-c", "pass"]
    yield Task("exec -- python / python", [*MEMPOOL, "exec", "--", *nothing], nothing, None, environment)
    yield Task("verify, 56 pairs, simulated", [*MEMPOOL, "--sim", "dgx-h200", "verify"])
    yield Task("check, 8 devices, simulated", [*MEMPOOL, "--sim", "dgx-h200", "check"])


@contextmanager
def stand_in() -> Iterator[Mapping[str, str]]:
    """The environment of programs on a stand-in driver library with eight devices."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir="/tmp") as directory:
        library = StandIn(Path(directory))
        try:
            with library.machine("8") as socket:
                yield machine_environment(library.library.parent, socket)
        finally:
            library.close()


def on_a_driver(environment: Mapping[str, str], where: str) -> Iterator[Task]:
    probe = [*MEMPOOL, "--no-session", "probe", "--matrix"]
    yield Task(f"probe, {where} / Python with cuInit", probe, CU_INIT, 1.25, environment)
    cells = [PYTHON, "-c", CELLS]
    yield Task(f"probe, {where} / the raw calls in Python", probe, cells, 3.0, environment)


# --- with one ---


def on_hardware(directory: Path, other: str) -> Iterator[Task]:
    probe = [*MEMPOOL, "--no-session", "probe", "--matrix"]
    if COMPILER:
        program = directory / "probe"
        source = Path(__file__).with_name("probe.c")
        compile_c("-O2", f"-I{HERE}", str(source), "-l:libcuda.so.1", "-o", str(program))
        yield Task("probe / the same in C", probe, [str(program)])
    for name, code, aim in (("cuda.core", CUDA_CORE, 0.5), ("torch", TORCH, None)):
        against = [other, "-c", code]
        if subprocess.run(against, capture_output=True, check=False).returncode == 0:
            yield Task(f"probe / {name}", probe, against, aim)
    yield Task("probe / nvidia-smi topo -p2p r", probe, ["nvidia-smi", "topo", "-p2p", "r"])
    yield Task("exec -- python with cuInit / python", [*MEMPOOL, "exec", "--", *CU_INIT], CU_INIT)
    yield Task("verify, host and device 0", [*MEMPOOL, "verify", "--owner", "host", "--accessor", "0"])
    # A finding is one of the driver's.
    yield Task("check", [*MEMPOOL, "check", "--allow-skips"], ends=(0, 1))


def gpu_memory(command: Sequence[str]) -> int:
    """The most MiB in use while it runs, by nvidia-smi, of the whole card."""
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, int(subprocess.run(ask, capture_output=True, text=True, check=True).stdout))
    return most


def hardware(rounds: int, other: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        tasks = [*on_a_driver({}, "hardware"), *on_hardware(Path(directory), other)]
        for task in tasks:
            show(task, rounds)
        seen = {" ".join(task.command)[-60:]: task.command for task in tasks if "probe" in task.name}
        seen |= {task.name.partition("/ ")[2]: task.against for task in tasks if task.against}
        for name, command in seen.items():
            print(f"    GPU memory while it runs: {gpu_memory(command):6} MiB  {name}")


def without_hardware(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="mp-", dir="/tmp") as runtime:
        environment = {"MEMPOOL_RUNTIME_DIR": runtime}
        # What takes a moment varies by more than that: it is measured more often.
        for task in (*started(), *in_a_session(environment)):
            show(task, 3 * rounds)
        for task in others(environment):
            show(task, rounds)
    simulated(rounds)
    if COMPILER:
        with stand_in() as environment_of_it:
            for task in on_a_driver(environment_of_it, "stand-in"):
                show(task, rounds)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=9, help="of each row; 3 times that of the first ones (default: 9)"
    )
    parser.add_argument("--hardware", action="store_true", help="only the rows that need a GPU")
    parser.add_argument("--other", default=PYTHON, help="a Python that has cuda.core and torch (default: this one)")
    given = parser.parse_args()
    print(f"{'what':<44}{'it takes':>11} {'compared':>11}  ratio")
    if not given.hardware:
        without_hardware(given.rounds)
    if given.hardware or Path("/dev/nvidiactl").exists():
        hardware(given.rounds, given.other)


if __name__ == "__main__":
    main()
