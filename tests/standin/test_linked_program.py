"""Compiled programs run on the stand-in library: what a typed port cannot say is asked here."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from .stand_in import HERE, StandIn, compile_c

pytestmark = pytest.mark.standin

ANSWERS = """\
count before cuInit: CUDA_ERROR_NOT_INITIALIZED
cuInit: CUDA_SUCCESS
create: CUDA_SUCCESS
grant: CUDA_SUCCESS
get: CUDA_SUCCESS
flags: 3
set NULL array, count 1: CUDA_ERROR_INVALID_VALUE
set count 0: CUDA_ERROR_INVALID_VALUE
set NULL pool: CUDA_ERROR_INVALID_VALUE
get NULL pool: CUDA_ERROR_INVALID_VALUE
get NULL location: CUDA_ERROR_INVALID_VALUE
get NULL flags: CUDA_ERROR_INVALID_VALUE
create NULL properties: CUDA_ERROR_INVALID_VALUE
destroy NULL pool: CUDA_ERROR_INVALID_VALUE
in a forked child, cuInit: CUDA_ERROR_NOT_INITIALIZED
in a forked child, count: CUDA_ERROR_NOT_INITIALIZED
in its parent, count: CUDA_SUCCESS
destroy: CUDA_SUCCESS
"""


@pytest.fixture(scope="module")
def linked(standin: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("linked") / "linked"
    compile_c("-o", str(program), str(HERE / "linked.c"), f"-L{standin.library.parent}", "-lcuda")
    return program


def test_a_linked_program_gets_the_drivers_answers(standin: StandIn, linked: Path) -> None:
    with standin.machine("2") as machine:
        done = standin.run([str(linked)], machine)
    assert (done.stdout, done.stderr, done.returncode) == (ANSWERS, "", 0)


def test_a_made_up_handle_kills_the_process(standin: StandIn, linked: Path) -> None:
    with standin.machine("2") as machine:
        done = standin.run([str(linked), "wild"], machine)
    assert done.returncode == -signal.SIGSEGV


def test_visible_devices_are_those_of_the_program(standin: StandIn, linked: Path) -> None:
    with standin.machine("2") as machine:
        done = standin.run([str(linked), "init"], machine, CUDA_VISIBLE_DEVICES="none")
    assert done.stdout.splitlines()[-1] == "cuInit: CUDA_ERROR_NO_DEVICE"


def test_without_a_server_it_answers_at_once(standin: StandIn, linked: Path, tmp_path: Path) -> None:
    done = standin.run([str(linked), "init"], str(tmp_path / "none"))
    assert done.stdout.splitlines()[-1] == "cuInit: CUDA_ERROR_SYSTEM_NOT_READY"
