"""Programs on hardware, asked and changed from outside while they work."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from .test_program_life import NOT_YET
from .test_program_pools import BINDINGS, CAPTURE, TRAIN, rows
from .worlds import World
from hardware import device_count, missing, run_python

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(device_count() < 1, reason=missing(1))]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")

HOST_POOL = """
import ctypes
import mempool_cli.agent
properties = cuda.CUmemPoolProps()
properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
PTX = b'''.version 6.4
.target sm_50
.address_size 64
.visible .entry fill(.param .u64 at) {
    .reg .u64 %at, %offset;
    .reg .u32 %value;
    ld.param.u64 %at, [at];
    mov.u32 %value, %tid.x;
    mul.wide.u32 %offset, %value, 4;
    add.u64 %at, %at, %offset;
    add.u32 %value, %value, 100;
    st.global.u32 [%at], %value;
    ret;
}
'''
call("cuInit", 0)
call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", 0))
stream = call("cuStreamCreate", int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
kernel = call("cuModuleGetFunction", call("cuModuleLoadData", PTX), b"fill")
pool = call("cuMemPoolCreate", properties)
mempool_cli.agent.name_pool("staging", pool, on="host")
memory = call("cuMemAllocFromPoolAsync", 1024, pool, stream)
call("cuStreamSynchronize", stream)
say("ready")
input()
call("cuLaunchKernel", kernel, 1, 1, 1, 256, 1, 1, 0, stream, ((int(memory),), (ctypes.c_void_p,)), 0)
call("cuStreamSynchronize", stream)
say(list((ctypes.c_int * 256).from_address(int(memory))) == list(range(100, 356)))
"""


@pytest.fixture
def hardware(runtime: Path) -> World:
    """This machine."""
    return World(runtime, {})


def test_a_host_pool_of_the_program_is_granted_and_its_kernel_works(hardware: World) -> None:
    with hardware.program(BINDINGS + HOST_POOL) as program:
        assert program.says() == "ready"
        assert rows(hardware, "staging") == ["staging: none 0; host RW"]
        granted = hardware.mempool(*TRAIN, "grant", "staging", "--to", "0")
        assert granted.out.startswith("pool staging: access granted to device 0 (1 cuMemPoolSetAccess call)\n")
        program.hears()
        assert program.says() == "True"
        assert program.ends() == (0, "", "")


def test_a_global_capture_of_the_program_survives(hardware: World) -> None:
    with hardware.program(f"{BINDINGS}\ncall('cuInit', 0)\n{CAPTURE}") as program:
        assert program.says() == "capturing"
        for command in (["probe"], ["create", "host", "--to", "0"], ["revoke", "pool-1", "--from", "0"], ["list"]):
            assert hardware.mempool(*TRAIN, *command).status == 0
        assert hardware.mempool(*TRAIN, "create", "0").status == 0
        assert hardware.mempool(*TRAIN, "destroy", "pool-1", "pool-2").status == 0
        program.hears()
        assert program.says() == "CUDA_SUCCESS"
        assert program.ends() == (0, "", "")


def test_cuda_is_not_initialised_by_a_question(hardware: World) -> None:
    """Nor is NVML, which opens most of the same files, taken for it."""
    code = (
        BINDINGS
        + """
import ctypes, os, warnings
warnings.simplefilter("ignore")  # NVML has a thread
from mempool_cli.agent.readiness import seems_initialised
call("cuDriverGetVersion")
assert ctypes.CDLL("libnvidia-ml.so.1").nvmlInit_v2() == 0
say(seems_initialised())
input()
if os.fork() == 0:
    os._exit(int(cuda.cuInit(0)[0]))
say(os.waitstatus_to_exitcode(os.wait()[1]), cuda.cuDeviceGetCount()[0].name)
call("cuInit", 0)
say(seems_initialised())
input()
"""
    )
    with hardware.program(code, "--grant", "0:0") as program:
        assert program.says() == "False"
        assert hardware.mempool(*TRAIN, "probe") == (3, "", NOT_YET)
        program.hears()
        assert program.says() == "0 CUDA_ERROR_NOT_INITIALIZED"
        assert program.says() == "True"
        assert program.tells().endswith("): pool default:0: nothing to do")
        program.hears()
        assert program.ends() == (0, "", "")


def test_a_new_process_after_a_question_about_the_device_count_can_use_cuda() -> None:
    program = (
        "import os\nfrom cuda.bindings import driver\n"
        "print(int(driver.cuDeviceGetCount()[0]), flush=True)\n"
        "if os.fork() == 0:\n    os._exit(int(driver.cuInit(0)[0]))\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]), int(driver.cuInit(0)[0]))\n"
    )
    assert run_python(program) == "3\n0 0\n"


@pytest.mark.skipif(importlib.util.find_spec("cuda.core") is None, reason="cuda-core is not installed")
def test_the_program_of_the_page(hardware: World) -> None:
    page = (Path(__file__).parents[2] / "docs" / "exec.md").read_text()
    code = page.partition("```python\n# staging.py")[2].partition("\n```")[0]
    prompt = "grant staging to device 0, then press Enter "
    with hardware.program(f"#{code}") as program:
        assert program.process.stdout is not None
        assert program.process.stdout.read(len(prompt)) == prompt
        assert hardware.mempool(*TRAIN, "grant", "staging", "--to", "0").status == 0
        program.hears()
        assert program.ends() == (0, "[100, 101, 102, 103]\n", "")


@needs_torch
@pytest.mark.parametrize("backend", ["native", "cudaMallocAsync"])
def test_pytorch_computes_and_captures_while_it_is_asked(hardware: World, backend: str) -> None:
    code = """
import threading
import torch
heard = threading.Event()
def listen():
    input()
    heard.set()
listener = threading.Thread(target=listen)
listener.start()
x = torch.randn(1024, 1024, device="cuda")
print(torch.cuda.get_allocator_backend(), flush=True)
while not heard.is_set():
    y = x @ x
torch.cuda.synchronize()
listener.join()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3):
        y = x @ x
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    z = x @ x
    print("capturing", flush=True)
    input()
    z = z + 1
graph.replay()
torch.cuda.synchronize()
print(torch.allclose(z, x @ x + 1), flush=True)
"""
    with hardware.program(code, PYTORCH_CUDA_ALLOC_CONF=f"backend:{backend}") as program:
        assert program.says() == backend
        for _ in range(3):
            assert rows(hardware, "0") == ["default:0: owner 0"]
        program.hears()
        assert program.says() == "capturing"
        for command in (["probe"], ["create", "host", "--to", "0"], ["list"], ["destroy", "pool-1"]):
            assert hardware.mempool(*TRAIN, *command).status == 0
        program.hears()
        assert program.says() == "True"
        assert program.ends().status == 0
