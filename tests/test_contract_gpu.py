"""The contract on hardware; skips, with the reason, where there is none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from mempool_cli.driver import kernels
from mempool_cli.driver.identity import loaded_libcuda

import data_path
import recycling
from bindings_world import bindings_world
from contract import DriverContract, PeerContract, Trial, World
from hardware import device_count, missing, no_peers, run_python


def hardware_world() -> Iterator[World]:
    """The real driver; a process loads one libcuda, and this one may have loaded the stand-in."""
    world = bindings_world()
    loaded = loaded_libcuda()
    if loaded is None or loaded.version is None:
        pytest.skip(f"this process has loaded {loaded}: run `pytest -m gpu` alone")
    yield world
    world.close()


def run_trial(name: str) -> data_path.Seen:
    """In a fresh process: a fault ends what the process can do with the device."""
    program = f"import data_path\ndata_path.main({name!r})\n"
    seen: data_path.Seen = json.loads(run_python(program, PYTHONPATH=os.pathsep.join(sys.path)))
    return seen


@pytest.mark.gpu
@pytest.mark.skipif(device_count() < 1, reason=missing(1))
class TestHardware(DriverContract):
    @pytest.fixture
    def world(self) -> Iterator[World]:
        yield from hardware_world()

    @pytest.fixture
    def trial(self) -> Trial:
        return run_trial

    @pytest.mark.parametrize("given", [True, False])
    def test_additions_wait_for_their_start_and_not_for_ever(self, world: World, given: bool) -> None:
        driver, stream, limit = world.driver, world.stream(), time.monotonic() + 60
        function = data_path.kernel(driver, kernels.ADD)
        with world.pinned(32) as start:
            driver.store(start, bytes(32))
            parameters = kernels.add_parameters(start + 24, 3, 5, start, start + 8)
            driver.launch_kernel(function, (16, 1, 1), (256, 1, 1), stream, parameters)
            while not any(driver.load(start + 8, 8)):
                assert time.monotonic() < limit
            assert not any(driver.load(start + 24, 8)), "it waits"
            if given:
                driver.store(start, b"\1")
            driver.stream_synchronize(stream)
            assert time.monotonic() < limit
            assert any(driver.load(start + 16, 8)) is not given
            assert driver.load(start + 24, 8) == (3 * 5 * 16 * 256).to_bytes(8, "little")


@pytest.mark.gpu2
@pytest.mark.skipif(bool(no_peers()), reason=no_peers())
class TestHardwarePeers(PeerContract):
    @pytest.fixture
    def world(self) -> Iterator[World]:
        yield from hardware_world()

    @pytest.fixture
    def trial(self) -> Trial:
        return run_trial


@pytest.mark.gpu
@pytest.mark.skipif(device_count() != 1, reason=f"the values are those of one visible device; {missing(1)}")
@pytest.mark.parametrize(
    ("visible", "answer"),
    [
        *[(value, "100") for value in ("", "none", "all", "void", "-1", "7", "7,0", "GPU-00000000")],
        ("0,0", "101"),
        *[(value, "1") for value in ("0", "0,7", "0,1,0", "0,-1", " 0", "00", "0x0")],
    ],
)
def test_which_devices_a_process_sees(visible: str, answer: str) -> None:
    program = (
        "from mempool_cli.driver.cuda import CudaDriver\n"
        "from mempool_cli.errors import DriverError\n"
        "driver = CudaDriver()\n"
        "try:\n    driver.init()\n    print(driver.device_get_count())\n"
        "except DriverError as error:\n    print(error.words.code)\n"
    )
    assert run_python(program, CUDA_VISIBLE_DEVICES=visible).strip() == answer


@pytest.mark.gpu
@pytest.mark.skipif(device_count() < 1, reason=missing(1))
def test_a_forked_child_is_not_initialized() -> None:
    program = (
        "import os, sys\n"
        "from mempool_cli.driver.cuda import CudaDriver\n"
        "from mempool_cli.errors import DriverError\n"
        "driver = CudaDriver()\ndriver.init()\n"
        "if os.fork() == 0:\n"
        "    for call in (driver.init, driver.device_get_count):\n"
        "        try:\n            call()\n            os._exit(9)\n"
        "        except DriverError as error:\n"
        "            assert error.words.name == 'CUDA_ERROR_NOT_INITIALIZED', error\n"
        "    os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    assert run_python(program).strip() == "0"


@pytest.mark.gpu
@pytest.mark.skipif(device_count() < 1, reason=missing(1))
def test_a_destroyed_handle_is_read_on_or_kills_the_process() -> None:
    """580.159.04 does either, depending on what the heap holds by then: never pass on a dead handle."""
    program = (
        "from mempool_cli.driver.cuda import CudaDriver\n"
        "from mempool_cli.driver.port import PoolProperties, device_location\n"
        "driver = CudaDriver()\ndriver.init()\n"
        "pool = driver.mem_pool_create(PoolProperties(device_location(0), 1 << 30))\n"
        "driver.mem_pool_destroy(pool)\n"
        "print(driver.mem_pool_get_access(pool, device_location(0)))\n"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (child.returncode, child.stdout) in ((0, "3\n"), (-signal.SIGSEGV, ""))


@pytest.mark.gpu
@pytest.mark.skipif(device_count() < 1, reason=missing(1))
def test_recycling_in_a_fresh_process() -> None:
    program = "import recycling\nrecycling.main()\n"
    seen = json.loads(run_python(program, PYTHONPATH=os.pathsep.join(sys.path)))
    recycling.check({kind: recycling.Recycling(*numbers) for kind, numbers in seen.items()})
