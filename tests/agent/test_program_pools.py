"""A program's pools, seen and set from outside: on the stand-in library, by cuda-core and by the bindings."""

from __future__ import annotations

import importlib.util
import json
import re

import pytest

from .worlds import SECONDS, World

pytestmark = pytest.mark.standin
needs_core = pytest.mark.skipif(importlib.util.find_spec("cuda.core") is None, reason="cuda-core is not installed")

CORE = """
from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions
device = Device(0)
device.set_current()
def peers(resource):
    print(*sorted(peer.device_id for peer in resource.peer_accessible_by), flush=True)
"""
BINDINGS = """
from cuda.bindings import driver as cuda
def call(name, *arguments):
    code, *values = getattr(cuda, name)(*arguments)
    assert not code, f"{name}: {code}"
    return values[0] if values else None
def pool_on(device):
    properties = cuda.CUmemPoolProps()
    properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    return call("cuMemPoolCreate", properties)
def say(*words):
    print(*words, flush=True)
"""
CAPTURE = """
call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", 0))
stream = call("cuStreamCreate", int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING))
call("cuStreamBeginCapture", stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
say("capturing")
input()
say(cuda.cuStreamEndCapture(stream)[0].name)
"""
SEEN = "\nas program train (pid PID) sees it; other processes have pools of their own\n"
AFFECTS = "affects only program train (pid PID); no other process\n"
TRAIN = ("--session", "train")


def rows(world: World, *words: str) -> list[str]:
    """What a probe says of each pool: `default:0: owner 0; RW 1`."""
    done = world.mempool(*TRAIN, "probe", *words)
    assert (done.status, done.err) == (0, "")
    table = done.out.partition("\n\n")[0].splitlines()[1:]
    return [f"{name}: {access}" for name, _, _, access in (re.split(r"\s{2,}", line) for line in table)]


@needs_core
def test_cuda_core_and_a_command_see_the_same_pool(world: World) -> None:
    code = CORE + "resource = DeviceMemoryResource(device)\nresource.peer_accessible_by = [1, 2]\n"
    with world.program(code + "peers(resource)\ninput()\npeers(resource)") as program:
        assert program.says() == "1 2"
        assert world.mempool(*TRAIN, "probe", "0") == (
            0,
            "pool       kind             on  access\ndefault:0  default,current  0   owner 0; RW 1-2; none 3\n" + SEEN,
            "",
        )
        assert world.mempool(*TRAIN, "grant", "0", "--to", "3", "--only") == (
            0,
            "pool default:0: access granted to device 3, revoked from devices 1-2 (1 cuMemPoolSetAccess call)\n"
            "access now: owner 0; RW 3; none 1-2\n" + AFFECTS,
            "",
        )
        program.hears()
        assert program.says() == "3"
        assert program.ends() == (0, "", "")
    assert world.left() == []


@needs_core
def test_a_pool_that_the_program_named_and_closed(world: World) -> None:
    code = (
        CORE
        + """
import mempool_cli.agent
resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=64 << 20))
mempool_cli.agent.name_pool("weights", resource)
print(hex(int(resource.handle)), flush=True)
input()
peers(resource)
resource.close()
print("closed", flush=True)
input()
"""
    )
    with world.program(code) as program:
        handle = program.says()
        assert world.mempool(*TRAIN, "grant", "weights", "--to", "1", "2").out == (
            "pool weights: access granted to devices 1-2 (1 cuMemPoolSetAccess call)\n"
            "access now: owner 0; RW 1-2; none 3\n" + AFFECTS
        )
        shown = world.mempool(*TRAIN, "--trace", "show", "weights")
        assert shown.out.startswith("pool                               weights\n")
        assert "\nmade by                            the program, which alone may destroy it\n" in shown.out
        assert f"({handle}, " in shown.err
        assert world.mempool(*TRAIN, "destroy", "weights") == (
            2,
            "",
            "error: pool weights is the program's own, which only the program may destroy [program-pool]\n",
        )
        program.hears()
        assert (program.says(), program.says()) == ("1 2", "closed")
        for command in (["list"], ["probe"], ["show", "weights"], ["grant", "weights", "--to", "3"]):
            done = world.mempool(*TRAIN, "--trace", *command)
            assert handle not in done.err
            assert "weights" not in done.out
        assert "error: there is no pool 'weights'; created here: none [unknown-pool]\n" in done.err
        program.hears()
        assert program.ends() == (0, "", "")


def test_a_current_pool_that_the_program_destroys(world: World) -> None:
    code = (
        BINDINGS
        + """
call("cuInit", 0)
pool = pool_on(1)
call("cuDeviceSetMemPool", 1, pool)
say(hex(int(pool)))
input()
call("cuMemPoolDestroy", pool)
say("destroyed")
input()
"""
    )
    with world.program(code) as program:
        handle = program.says()
        assert rows(world)[-1] == "current:1: owner 1; none 0, 2-3"
        assert world.mempool(*TRAIN, "grant", "current:1", "--to", "0").status == 0
        assert rows(world, "current:1", "1") == [
            "current:1: owner 1; RW 0; none 2-3",
            "default:1: owner 1; none 0, 2-3",
        ]
        program.hears()
        assert program.says() == "destroyed"
        for command in (["list"], ["probe"], ["show", "current:1"], ["grant", "current:1", "--to", "3"]):
            done = world.mempool(*TRAIN, "--trace", *command)
            assert (done.status, handle in done.err, "current:1" in done.out) == (0, False, False)
        program.hears()
        assert program.ends() == (0, "", "")


def test_bare_handles_and_host_pools_have_to_be_placed_and_forgotten(world: World) -> None:
    code = (
        BINDINGS
        + """
import mempool_cli.agent as agent
call("cuInit", 0)
pool = pool_on(2)
for words in ({}, {"on": "nowhere"}):
    try:
        agent.name_pool("mine", pool, **words)
    except Exception as error:
        say(type(error).__name__, error)
try:
    agent.name_pool("host", pool, on=2)
except Exception as error:
    say(type(error).__name__, error)
try:
    agent.name_pool("mine", "junk", on=2)
except Exception as error:
    say(type(error).__name__, error)
agent.name_pool("mine", pool, on=2)
agent.name_pool("lost", pool, on=7)
input()
agent.forget_pool("lost")
agent.forget_pool("mine")
call("cuMemPoolDestroy", pool)
say("forgotten")
input()
"""
    )
    with world.program(code) as program:
        assert program.says() == "TypeError where is pool mine? on=0, on='host' or on='numa:0'"
        assert program.says() == "ValueError 'nowhere' is no place for a pool: on=0, on='host' or on='numa:0'"
        assert program.says() == "MempoolError 'host' is no name for a pool"
        assert program.says() == "TypeError pool mine: 'junk' has no handle and is none"
        assert rows(world, "mine") == ["mine: owner 2; none 0-1, 3"]
        lost = world.mempool(*TRAIN, "show", "lost")
        assert (
            lost.err == "error: pool lost cannot be reached: there is no device 7: devices 0 to 3 are visible"
            " [unknown-device]\n"
        )
        listed = world.mempool(*TRAIN, "list")
        assert (listed.status, len(listed.out.partition("\n\n")[0].splitlines())) == (4, 7)
        assert world.mempool(*TRAIN, "create", "0", "--name", "mine").err.startswith("error: there is a pool 'mine'")
        program.hears()
        assert program.says() == "forgotten"
        assert [row.partition(": ")[0] for row in rows(world)] == [f"default:{device}" for device in range(4)]
        program.hears()
        assert program.ends() == (0, "", "")


def test_pools_created_from_outside_belong_to_the_program_until_it_is_left(world: World) -> None:
    code = (
        BINDINGS
        + """
call("cuInit", 0)
own = pool_on(3)
call("cuDeviceSetMemPool", 3, own)
say("ready")
input()
say(call("cuDeviceGetMemPool", 0) != call("cuDeviceGetDefaultMemPool", 0))
input()
say(call("cuDeviceGetMemPool", 0) == call("cuDeviceGetDefaultMemPool", 0), call("cuDeviceGetMemPool", 3) == own)
"""
    )
    with world.program(code) as program:
        assert program.says() == "ready"
        assert world.mempool(*TRAIN, "create", "0", "--name", "big", "--max-size", "1GiB", "--to", "1").status == 0
        assert world.mempool(*TRAIN, "set-current", "big").status == 0
        program.hears()
        assert program.says() == "True"
        assert re.split(r"  +", world.mempool("session", "list").out.splitlines()[1])[-3:] == ["TIME", "-", "big"]
        assert world.mempool(*TRAIN, "session", "stop") == (
            0,
            "program train (pid PID) goes on without its agent; destroyed what mempool created in it: big\n",
            "warning: pool big was the current pool of device 0; its default pool is again [current-pool-reset]\n",
        )
        assert not [name for name in world.left() if "train" in name]
        program.hears()
        assert program.says() == "True True"
        assert program.ends() == (0, "", "")


def test_no_context_is_made_and_a_capture_survives(world: World) -> None:
    code = (
        BINDINGS
        + """
call("cuInit", 0)
say("initialised")
input()
say(*(state[-1] for state in map(cuda.cuDevicePrimaryCtxGetState, range(4))))
"""
        + CAPTURE
    )
    with world.program(code) as program:
        assert program.says() == "initialised"
        assert world.mempool(*TRAIN, "probe").status == 0
        program.hears()
        assert (program.says(), program.says()) == ("0 0 0 0", "capturing")
        for command in (["probe"], ["grant", "0", "--to", "1"], ["create", "0"], ["destroy", "pool-1"], ["list"]):
            assert world.mempool(*TRAIN, *command).status == 0
        program.hears()
        assert program.says() == "CUDA_SUCCESS"
        assert program.ends() == (0, "", "")


def test_device_numbers_are_those_of_the_program(world: World) -> None:
    code = (
        BINDINGS
        + """
import os
os.environ["CUDA_VISIBLE_DEVICES"] = "2,3"
call("cuInit", 0)
say("ready")
input()
"""
    )
    with world.program(code) as program:
        assert program.says() == "ready"
        there = {"CUDA_VISIBLE_DEVICES": "2,3"}
        first = world.mempool(*TRAIN, "--format", "json", "devices", **there)
        uuid = json.loads(first.out)["data"]["devices"][1]["uuid"]
        refused = world.mempool(*TRAIN, "grant", "0", "--to", "1")
        assert (refused.status, refused.out) == (5, "")
        assert "other-environment" in refused.err
        granted = world.mempool(*TRAIN, "--format", "json", "grant", "default:0", "--to", uuid, **there)
        assert json.loads(granted.out)["data"]["granted"] == [1]
        program.hears()
        assert program.ends() == (0, "", "")


def test_a_watch_lasts_as_long_as_the_program(world: World) -> None:
    with world.program(f"{BINDINGS}\ncall('cuInit', 0)\nsay('ready')\ninput()") as program:
        assert program.says() == "ready"
        watch = world.start("mempool", *TRAIN, "probe", "0", "--watch", "0.1")
        assert watch.stdout is not None
        for _ in range(4):
            watch.stdout.readline()
        world.mempool(*TRAIN, "grant", "0", "--to", "2")
        assert watch.stdout.readline() == "default:0: device 2 none -> RW\n"
        program.hears()
        out, err = watch.communicate(timeout=SECONDS)
    told = "error: program train has ended [no-session]\n  try: `mempool session list`\n"
    assert (watch.returncode, out, err) == (5, "", told)
