"""The C programs, compiled against NVIDIA's cuda.h and run on the stand-in library, agree with Python."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from standin.stand_in import COMPILER, StandIn, machine_environment

from mempool_cli.driver import driver_source
from mempool_cli.model import Reproduction, ReproReport
from mempool_cli.repro import every_bug, find_bug
from mempool_cli.repro.c_writer import c_program
from mempool_cli.repro.language import Bug
from mempool_cli.repro.run import Choices, reproduce

# Not marked as a test of the bindings: no Python is in it.

FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror")
WORST_FIRST = ("affected", "present", "inconclusive", "not-affected", "absent")

Build = Callable[..., Path]


class Run(NamedTuple):
    """What a program said at its end, and its exit status."""

    result: str
    status: int
    lines: list[str]


def directory_of_cuda_h(package: str) -> Path:
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "cuda.h":
            return Path(str(file.locate())).parent
    pytest.skip(f"no cuda.h: {package} is not installed")


@pytest.fixture(scope="session")
def cuda_h() -> Path:
    """The directory of a real cuda.h."""
    return directory_of_cuda_h("nvidia-cuda-runtime")


@pytest.fixture(scope="session")
def build(standin: StandIn, cuda_h: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """`build(bug, flags...)` compiles a bug's program, once."""
    directory, done = tmp_path_factory.mktemp("emitted"), dict[tuple[str, ...], Path]()

    def program(bug: str, *flags: str, seen_on: Sequence[str] = ()) -> Path:
        key = (bug, *flags, *seen_on)
        if key not in done:
            done[key] = directory / f"{len(done)}"
            source = done[key].with_suffix(".c")
            source.write_text(c_program(find_bug(bug), seen_on=seen_on))
            _compile(source, done[key], "-isystem", str(cuda_h), *flags, f"-L{standin.library.parent}")
        return done[key]

    return program


def _compile(source: Path, program: Path, *flags: str) -> None:
    assert COMPILER is not None
    command = [COMPILER, *FLAGS, *flags, str(source), "-lcuda", "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def run(standin: StandIn, program: Path, spec: str, *arguments: str) -> Run:
    with standin.machine(spec) as socket:
        done = standin.run([str(program), *arguments], socket)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    return Run(lines[-1], done.returncode, lines)


def python(
    bug: str, spec: str, *, allow_faults: bool = False, owner: int | None = None, accessor: int | None = None
) -> tuple[tuple[Reproduction, ...], int]:
    """What Python says of the same machine, and its exit status."""
    words = [None if ordinal is None else str(ordinal) for ordinal in (owner, accessor)]
    choices = Choices(owner=words[0], accessor=words[1], repeat=1, allow_faults=allow_faults)
    answer = reproduce(driver_source(spec), [bug], choices, lambda event: None).answer
    assert isinstance(answer.result, ReproReport)
    return answer.result.reproductions, answer.exit


def verdicts(lines: list[str]) -> list[str]:
    """The line of each trial: `variant, arm, history: verdict: why`."""
    return [line for line in lines if re.match(r"[a-z]+, [a-z-]+, [a-z-]+: [a-z-]+: ", line)]


MACHINES = [
    ("recycled-handle", "4", "not-affected", 0),
    ("recycled-handle", "4,fault=recycled-handle", "affected", 1),
    ("recycled-handle", "1", "inconclusive", 6),
    ("recycled-handle", "4,fault=fresh-handles", "inconclusive", 6),
    ("recycled-handle", "no-p2p-2", "inconclusive", 6),
    ("recycled-handle", "asym-3,fault=recycled-handle", "affected", 1),
    ("host-pool-revoke", "4", "not-affected", 0),
    ("host-pool-revoke", "4,fault=host-pool-revoke", "affected", 1),
    ("peer-write-lost", "2", "not-affected", 0),
    ("peer-write-lost", "4", "not-affected", 0),
    ("peer-write-lost", "2,fault=lost-after-setaccess", "affected", 1),
    ("peer-write-lost", "asym-3,fault=lost-after-setaccess:0-1", "affected", 1),
    ("peer-write-lost", "4,fault=lost-after-setaccess:1-0", "not-affected", 0),
    ("peer-write-lost", "2,fault=drop-writes", "inconclusive", 6),
    ("peer-write-lost", "2,fault=mirror", "inconclusive", 6),
    ("peer-write-lost", "2,fault=corrupt", "inconclusive", 6),
    ("peer-write-lost", "1", "inconclusive", 6),
    ("peer-write-lost", "no-p2p-2", "inconclusive", 6),
    ("pointer-flags", "4", "affected", 1),
    ("pointer-flags", "4,fault=honest-pointer-flags", "not-affected", 0),
    ("grant-without-p2p", "no-p2p-2", "present", 0),
    ("owner-in-batch", "4", "present", 0),
    ("owner-in-batch", "1", "present", 0),
    ("query-breaks-capture", "4", "present", 0),
    ("use-after-destroy", "4", "present", 0),
]


@pytest.mark.parametrize(("bug", "spec", "result", "status"), MACHINES)
@pytest.mark.usefixtures("here")
def test_the_same_verdict(standin: StandIn, build: Build, bug: str, spec: str, result: str, status: int) -> None:
    found = run(standin, build(bug), spec)
    assert (found.result, found.status) == (f"RESULT {result}", status)
    reproductions, expected_status = python(bug, spec)
    worst = min((one.verdict for one in reproductions), key=WORST_FIRST.index)
    assert (found.result, found.status) == (f"RESULT {worst}", expected_status)
    check_trials(found, reproductions)


@pytest.mark.parametrize(
    ("bug", "spec", "status"),
    [
        ("host-pool-revoke", "4", 0),
        ("host-pool-revoke", "4,fault=host-pool-revoke", 1),
        ("recycled-handle", "4,fault=recycled-handle", 1),
        ("recycled-handle", "4,fault=recycled-handle,fault=mirror", 1),
        ("recycled-handle", "4,fault=recycled-handle,fault=drop-writes", 1),
        ("host-pool-revoke", "4,fault=host-pool-revoke,fault=mirror", 1),
    ],
)
@pytest.mark.usefixtures("here")
def test_the_same_of_kernels(standin: StandIn, build: Build, bug: str, spec: str, status: int) -> None:
    found = run(standin, build(bug, "-DALLOW_FAULTS=1"), spec)
    reproductions, expected_status = python(bug, spec, allow_faults=True)
    assert (found.status, expected_status) == (status, status)
    check_trials(found, reproductions)
    assert any(" kernel, " in line for line in verdicts(found.lines))


def test_the_owner_says_whether_a_kernel_got_through(standin: StandIn, build: Build) -> None:
    """Behind a mirror the writer sees its own word, and the owner never does."""
    for fault, counter in (
        ("leak", "that wrote to memory of a pool with inherited access"),
        ("mirror", "that ended well, and the owner saw nothing of it"),
    ):
        program = build("recycled-handle", "-DALLOW_FAULTS=1")
        lines = run(standin, program, f"4,fault=recycled-handle,fault={fault}").lines
        counts = [line.split() for line in lines if re.match(r" +\d+ kernels ", line)]
        assert {" ".join(line[2:]) for line in counts if line[0] == "1"} == {counter}


def test_a_fault_comes_when_it_is_waited_for(standin: StandIn, build: Build) -> None:
    """Whatever the environment says: from the launch, it would look as if that had failed."""
    with standin.machine("4") as socket:
        program = str(build("host-pool-revoke", "-DALLOW_FAULTS=1"))
        done = standin.run([program], socket, CUDA_LAUNCH_BLOCKING="1")
    assert (done.stdout.splitlines()[-1], done.returncode) == ("RESULT not-affected", 0)


SHOW_PIPES = """\
#define _POSIX_C_SOURCE 200809L
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#define cuInit(flags) (printf("pipes in %s\\n", getenv("CUDA_MPS_PIPE_DIRECTORY")), cuInit(flags))
"""


def test_no_trial_is_a_client_of_mps(standin: StandIn, build: Build, tmp_path: Path) -> None:
    """Where CUDA starts, there is no server to be found, whatever the environment says."""
    before = tmp_path / "before.h"
    before.write_text(SHOW_PIPES)
    program = str(build("host-pool-revoke", "-include", str(before)))
    with standin.machine("4") as socket:
        lines = standin.run([program], socket, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path)).stdout.splitlines()
    assert [line for line in lines if line.startswith("pipes in ")] == ["pipes in /nonexistent"] * 2


# Trials that wait for ever, with no time limit of their own; only with KILLS does a signal end them. Waits are short.
STUCK = """\
#define _POSIX_C_SOURCE 200809L
#include <cuda.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>
#define cuInit(flags) (pause(), cuInit(flags))
#define alarm(seconds) ((void)((seconds) == LIMIT_SECONDS ? 0 : alarm((seconds) > 0)))
#ifndef KILLS
#define kill(pid, number) ((void)(pid))
#define nanosleep(time, rest) ((void)(time))
#endif
"""


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["-DKILLS"], "the trial did not end in time and was killed"),
        ([], r"SIGKILL does not end the trial: process (\d+) remains"),
    ],
)
def test_a_trial_that_does_not_end(standin: StandIn, build: Build, tmp_path: Path, flags: list[str], why: str) -> None:
    """One that remains is the last: the next one would use the same device."""
    before, said = tmp_path / "before.h", tmp_path / "said"
    before.write_text(STUCK)
    program = build("owner-in-batch", *flags, "-include", str(before))
    environment = machine_environment(standin.library.parent, "")
    with said.open("w") as file:
        done = subprocess.run([str(program)], env=environment, stdout=file, timeout=60, check=False)
    lines = said.read_text().splitlines()
    found = [re.fullmatch(rf"\w+, clear, never-allocated: inconclusive: {why}", line) for line in verdicts(lines)]
    for match in found:
        if match and match.groups():
            os.kill(int(match[1]), signal.SIGKILL)
    assert (lines[-1], done.returncode) == ("RESULT inconclusive", 6)
    assert [bool(match) for match in found] == [True] * (2 if flags else 1)


def check_trials(found: Run, reproductions: tuple[Reproduction, ...]) -> None:
    """Every trial has the same verdict, for the same reason."""
    assert [line for line in verdicts(found.lines) if _was_run(line, reproductions)] == [
        f"{one.variant}, {trial.arm}, {trial.history}: {trial.verdict}: {trial.why}"
        for one in reproductions
        for trial in one.trials
    ]


def _was_run(line: str, reproductions: tuple[Reproduction, ...]) -> bool:
    return line.partition(",")[0] in {one.variant for one in reproductions if one.trials}


@pytest.mark.parametrize(
    ("bug", "spec"),
    [
        ("grant-without-p2p", "4"),
        ("grant-without-p2p", "1"),
        ("grant-without-p2p", "mixed-4"),
        ("host-pool-revoke", "h100-cc"),
        ("host-pool-revoke", "mixed-4"),
        ("owner-in-batch", "h100-cc"),
    ],
)
@pytest.mark.usefixtures("here")
def test_the_same_exit_status(standin: StandIn, build: Build, bug: str, spec: str) -> None:
    """Where a machine lacks something too."""
    assert run(standin, build(bug), spec).status == python(bug, spec)[1]


@pytest.mark.parametrize("bug", every_bug())
def test_every_program_compiles_with_cuda_12_0(bug: str, tmp_path: Path) -> None:
    """The oldest that mempool takes: what came later has no name there."""
    source = tmp_path / "bug.c"
    source.write_text(c_program(find_bug(bug)))
    include = directory_of_cuda_h("nvidia-cuda-runtime-cu12")
    assert "#define CUDA_VERSION 12000" in (include / "cuda.h").read_text()
    _compile(source, tmp_path / "bug.o", "-c", "-isystem", str(include))


def test_every_bug_is_run_here() -> None:
    assert {bug for bug, *_ in MACHINES} == set(every_bug())


@pytest.mark.parametrize(
    ("bug", "spec", "owner", "accessor"),
    [
        ("recycled-handle", "1", None, None),
        ("owner-in-batch", "no-p2p-2", None, None),
        ("owner-in-batch", "asym-3", 1, None),
        ("owner-in-batch", "asym-3", 1, 2),
        ("owner-in-batch", "asym-3", 1, 1),
        ("peer-write-lost", "1", None, None),
        ("owner-in-batch", "h100-cc", None, None),
        ("host-pool-revoke", "mixed-4", None, 2),
        ("grant-without-p2p", "1", None, None),
        ("grant-without-p2p", "4", None, None),
        ("grant-without-p2p", "4", None, 1),
        ("grant-without-p2p", "4", 2, 1),
    ],
)
@pytest.mark.usefixtures("here")
def test_the_same_is_missing(
    standin: StandIn, build: Build, bug: str, spec: str, owner: int | None, accessor: int | None
) -> None:
    chosen = {"OWNER": owner, "ACCESSOR": accessor}
    flags = [f"-D{name}={ordinal}" for name, ordinal in chosen.items() if ordinal is not None]
    reproductions, _ = python(bug, spec, owner=owner, accessor=accessor)
    missing = {one.variant: one.why for one in reproductions if not one.trials}
    assert missing
    lines = [line.split(": ", 2) for line in verdicts(run(standin, build(bug, *flags), spec).lines)]
    found = {place.partition(",")[0]: (verdict, why) for place, verdict, why in lines}
    assert {variant: found[variant] for variant in missing} == {
        variant: ("inconclusive", why) for variant, why in missing.items()
    }


def test_codes_stand_beside_the_arms(standin: StandIn, build: Build) -> None:
    found = run(standin, build("recycled-handle"), "4,fault=recycled-handle")
    at = found.lines.index("device, one-call-with-owner, never-allocated: affected: access was inherited by 75 of 75")
    assert found.lines[at + 1] == "       256 calls answered CUDA_ERROR_INVALID_DEVICE"
    assert "  cuMemPoolSetAccess(pool, entries, 2) = CUDA_ERROR_INVALID_DEVICE" in found.lines


def test_versions_come_first(standin: StandIn, build: Build, cuda_h: Path) -> None:
    version = re.search(r"^#define CUDA_VERSION (\d+)", (cuda_h / "cuda.h").read_text(), re.MULTILINE)
    assert version is not None
    lines = run(standin, build("host-pool-revoke"), "4").lines
    assert lines[0] == f"CUDA_VERSION {version[1]}"
    assert lines[2] == "driver API version 13000"
    assert lines[3].startswith("kernel module: ")


@pytest.mark.parametrize("bug", ["recycled-handle", "grant-without-p2p", "use-after-destroy"])
def test_no_driver(standin: StandIn, build: Build, tmp_path: Path, bug: str) -> None:
    done = standin.run([str(build(bug))], str(tmp_path / "none"))
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1] == "RESULT inconclusive"


def test_no_device(standin: StandIn, build: Build) -> None:
    assert run(standin, build("host-pool-revoke"), "0").status == 3
    with standin.machine("4") as socket:
        assert standin.run([str(build("host-pool-revoke"))], socket, CUDA_VISIBLE_DEVICES="none").returncode == 3


@pytest.mark.parametrize(("arm", "status"), [("none", 1), ("per-device", 0), ("one-call-with-owner", 1)])
def test_a_trial_by_hand(standin: StandIn, build: Build, arm: str, status: int) -> None:
    program = build("recycled-handle")
    found = run(standin, program, "4,fault=recycled-handle", "--trial", "device", arm, "allocated")
    assert found.status == status
    assert found.lines[0] == f"trial: device, arm {arm}, history allocated"
    assert found.result.startswith("  -> ")


def test_a_trial_of_a_trap_by_hand(standin: StandIn, build: Build) -> None:
    """The header says that present ends with 0."""
    found = run(standin, build("owner-in-batch"), "4", "--trial", "host", "clear", "never-allocated")
    assert found.result == "  -> the accessor kept its access"
    assert found.status == 0


@pytest.mark.parametrize(
    "arguments", [("--trial", "device", "none"), ("--trial", "moon", "none", "allocated"), ("--help",)], ids=" ".join
)
def test_wrong_arguments(standin: StandIn, build: Build, arguments: tuple[str, ...]) -> None:
    program = build("recycled-handle")
    with standin.machine("1") as socket:
        done = standin.run([str(program), *arguments], socket)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"usage: {program} [--trial VARIANT ARM HISTORY]\n"


def test_a_pair_is_chosen_when_it_is_built(standin: StandIn, build: Build) -> None:
    program = build("owner-in-batch", "-DOWNER=2", "-DACCESSOR=1")
    lines = [line.strip() for line in run(standin, program, "4").lines]
    assert [line.partition(",")[0] for line in lines if line.startswith(("owner:", "accessor:"))] == [
        "owner: device 2",
        "accessor: device 1",
        "accessor: device 1",
    ]


def test_a_pair_that_cannot(standin: StandIn, build: Build) -> None:
    program = build("owner-in-batch", "-DOWNER=1", "-DACCESSOR=1")
    found = run(standin, program, "4", "--trial", "device", "clear", "never-allocated")
    assert found.status == 6


@pytest.mark.parametrize("bug", every_bug().values(), ids=lambda bug: bug.id)
def test_the_header(bug: Bug) -> None:
    text = c_program(bug, seen_on=["simulated machine 4, 2026-01-01: host pools: affected"])
    header = text[: text.index("*/")]
    name = bug.id.replace("-", "_")
    assert header.startswith(f"/*\n * {bug.id}: ")
    assert f" * Build     cc {name}.c -lcuda -o {name}\n" in header
    stubs = f"cc -I/usr/local/cuda/include {name}.c -L/usr/local/cuda/lib64/stubs -lcuda -o {name}"
    assert f" *           {stubs}\n" in header
    assert " * Seen on   simulated machine 4, 2026-01-01: host pools: affected\n" in header
    assert all(f" * Source    {source}" in header for source in bug.sources)
    assert "@" not in re.sub(r'"[^"\n]*"', "", text.replace("\\@", ""))
    assert not re.search(r"[^\S\n]+$", text, re.MULTILINE)
    assert "\t" not in text
    assert "\n\n\n" not in text


def test_whatever_it_was_seen_on(build: Build) -> None:
    """The SPEC of a simulated machine is a path, and may hold the end of a comment."""
    build("host-pool-revoke", seen_on=["simulated machine ./a*/m.toml: host pools: affected"])
