"""The simulated machine beyond what the driver contract says of it: what it is made of, and what is wrong with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mempool_cli.driver import DriverSource, driver_source
from mempool_cli.driver.guard import GuardedDriver, HandleMisuseError
from mempool_cli.driver.port import (
    HOST_LOCATION,
    AccessEntry,
    AccessFlags,
    AllocationType,
    ComputeMode,
    Location,
    LocationType,
    PoolProperties,
    device_location,
)
from mempool_cli.driver.sim.calls import SimulatedCrash
from mempool_cli.driver.sim.machine import Machine, Process
from mempool_cli.driver.sim.profile import Failure, Profile, parse_spec, profile_names
from mempool_cli.errors import MempoolError

from data_path import own_stream, refusal

GIB = 1 << 30
NODE_0 = Location(LocationType.HOST_NUMA, 0)
DEVICE_0 = device_location(0)


def process(spec: str = "4", visible: str | None = None) -> Process:
    """A process on that machine, after cuInit."""
    started = Machine(parse_spec(spec)).process(visible)
    started.init()
    return started


def grant(driver: Process, pool: int, *devices: int) -> None:
    driver.mem_pool_set_access(pool, [AccessEntry(device_location(d), AccessFlags.READWRITE) for d in devices])


def machine_file(directory: Path, text: str) -> str:
    file = directory / "machine.toml"
    file.write_text(text)
    return str(file)


def reach(profile: Profile) -> dict[int, list[int]]:
    """Accessor -> the owners that it reaches."""
    count = len(profile.devices)
    return {a: [b for b in range(count) if (a, b) in profile.reach] for a in range(count)}


# --- SPEC ---


def test_the_machines_of_the_package() -> None:
    assert profile_names() == ["asym-3", "dgx-h200", "h100-cc", "h200", "mixed-4", "no-p2p-2", "pcie-4"]


@pytest.mark.parametrize(
    ("spec", "reached"),
    [
        ("3", {0: [1, 2], 1: [0, 2], 2: [0, 1]}),
        ("1", {0: []}),
        ("h200", {0: []}),
        ("asym-3", {0: [2], 1: [0], 2: [0]}),
        ("pcie-4", {0: [1], 1: [0], 2: [3], 3: [2]}),
        ("no-p2p-2", {0: [], 1: []}),
        ("mixed-4", {0: [1, 3], 1: [0, 3], 2: [], 3: [0, 1]}),
        ("dgx-h200", {a: [b for b in range(8) if b != a] for a in range(8)}),
        ("h100-cc", {a: [] for a in range(8)}),
    ],
)
def test_who_reaches_whom(spec: str, reached: dict[int, list[int]]) -> None:
    assert reach(parse_spec(spec)) == reached
    driver = process(spec)
    for accessor, owners in reached.items():
        others = [owner for owner in reached if owner != accessor]
        assert [owner for owner in others if driver.device_can_access_peer(accessor, owner)] == owners


def test_a_machine_file(tmp_path: Path) -> None:
    spec = machine_file(
        tmp_path,
        """
        description = "two kinds"
        driver_version = 12080
        numa_nodes = 2
        [[device]]
        count = 2
        memory = 1_000_000
        [[device]]
        name = "old"
        pools = false
        host_pools = false
        compute_capability = [7, 5]
        host_numa_id = 1
        uuid = "GPU-11111111-2222-3333-4444-555555555555"
        pci_bus_id = "0000:81:00.0"
        [p2p]
        groups = [[0, 1]]
        pairs = [[2, 0]]
        [[failure]]
        call = "cuMemPoolCreate"
        code = 2
        device = 1
        after = 1
        times = 3
        """,
    )
    profile = parse_spec(spec)
    assert [card.name for card in profile.devices] == ["NVIDIA H200", "NVIDIA H200", "old"]
    assert [card.memory for card in profile.devices] == [1_000_000, 1_000_000, 150_109_880_320]
    assert profile.devices[2].uuid == "11111111222233334444555555555555"
    assert (profile.devices[2].pci_bus_id, profile.devices[2].compute_capability) == ("0000:81:00.0", (7, 5))
    assert reach(profile) == {0: [1], 1: [0], 2: [0]}
    assert (profile.driver_version, profile.numa_nodes) == (12080, 2)
    assert profile.failures == (Failure(call="cuMemPoolCreate", code=2, device=1, after=1, times=3),)
    driver = process(spec)
    assert driver.driver_get_version() == 12080
    assert [driver.device_get_attribute(115, device) for device in range(3)] == [1, 1, 0]


def test_1024_devices_are_1024_different_ones() -> None:
    profile = parse_spec("1024")
    assert len({card.uuid for card in profile.devices}) == len({card.pci_bus_id for card in profile.devices}) == 1024


def test_equal_machines_are_equal_by_content(tmp_path: Path) -> None:
    same = machine_file(tmp_path, '[[device]]\nname = "NVIDIA H200"\ncount = 4\n[p2p]\ngroups = [[3, 2, 1, 0]]\n')
    four = driver_source("4").digest
    assert driver_source(same).digest == four == driver_source("004").digest
    others = [driver_source(spec).digest for spec in ("3", "4,fault=recycled-handle", "pcie-4")]
    assert len({four, *others, driver_source(None).digest}) == 5
    twice = driver_source("4,fault=recycled-handle,fault=recycled-handle")
    assert twice.digest == driver_source("4,fault=recycled-handle").digest


def test_a_source_can_be_handed_to_another_process(tmp_path: Path) -> None:
    file = machine_file(tmp_path, '[[device]]\nname = "é"\n[[failure]]\ncall = "cuInit"\ncode = 100\n')
    source = driver_source(file)
    Path(file).unlink()
    again = DriverSource.decode(source.encode())
    assert (again.sim, again.digest) == (file, source.digest)
    assert refusal(again.open().init) == "NO_DEVICE"


def test_an_unknown_spec_is_refused_when_it_is_read() -> None:
    for spec in ("nope", "4,fault=nope", "/missing.toml"):
        with pytest.raises(MempoolError):
            driver_source(spec)


# --- which devices a process sees ---

SEEN_UUID = "GPU-ddd6ede9-f2b5-5396-a65b-2b9452a400eb"  # the third card


@pytest.mark.parametrize(
    ("visible", "code", "cards"),
    [
        (None, "SUCCESS", [0, 1, 2, 3]),
        ("", "NO_DEVICE", []),
        ("none", "NO_DEVICE", []),
        ("all", "NO_DEVICE", []),
        ("void", "NO_DEVICE", []),
        ("-1", "NO_DEVICE", []),
        ("7", "NO_DEVICE", []),
        ("7,0", "NO_DEVICE", []),
        (SEEN_UUID.removeprefix("GPU-"), "NO_DEVICE", []),
        ("GPU-00000000-0000-0000-0000-000000000000", "NO_DEVICE", []),
        ("GPU-", "NO_DEVICE", []),
        ("0,0", "INVALID_DEVICE", []),
        ("1,2,1", "INVALID_DEVICE", []),
        (f"2,{SEEN_UUID}", "INVALID_DEVICE", []),
        ("0", "SUCCESS", [0]),
        ("0,7", "SUCCESS", [0]),
        ("0,7,1", "SUCCESS", [0]),
        ("0,-1", "SUCCESS", [0]),
        ("0,,1", "SUCCESS", [0]),
        ("0,x,1", "SUCCESS", [0]),
        (" 0", "SUCCESS", [0]),
        ("00", "SUCCESS", [0]),
        ("0x0", "SUCCESS", [0]),
        ("3,1", "SUCCESS", [3, 1]),
        ("2, 0", "SUCCESS", [2, 0]),
        (SEEN_UUID, "SUCCESS", [2]),
        (SEEN_UUID.upper(), "SUCCESS", [2]),
        ("GPU-ddd6", "SUCCESS", [2]),
        ("GPU-ddd6,0", "SUCCESS", [2, 0]),
    ],
)
def test_visible_devices(visible: str | None, code: str, cards: list[int]) -> None:
    machine = Machine(parse_spec("4"))
    driver = machine.process(visible)
    assert refusal(driver.init) == code
    if code == "SUCCESS":
        seen = [driver.device_get_uuid(ordinal).hex() for ordinal in range(driver.device_get_count())]
        assert seen == [machine.profile.devices[card].uuid for card in cards]
    else:
        assert refusal(driver.device_get_count) == "NOT_INITIALIZED"


def test_one_device_and_a_second_named_that_is_not_there() -> None:
    """Measured with one card: a list ends at the first entry that names none."""
    assert process("1", "0,1,0").device_get_count() == 1


def test_ordinals_are_those_of_the_process() -> None:
    """On asym-3 card 1 reaches card 0, not the other way round."""
    driver = process("asym-3", "1,0")
    assert driver.device_can_access_peer(0, 1)
    assert not driver.device_can_access_peer(1, 0)


def test_the_environment_decides_for_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    driver = driver_source("4").open()
    driver.init()
    assert driver.device_get_pci_bus_id(0) == "0000:07:00.0"
    assert driver.device_get_count() == 2


# --- handles ---


def loop(driver: Process, location: Location, rounds: int) -> list[int]:
    """The handles of pools that are created and destroyed one after the other."""
    handles = []
    for _ in range(rounds):
        handles.append(driver.mem_pool_create(PoolProperties(location, GIB)))
        driver.mem_pool_destroy(handles[-1])
    return handles


def test_device_pools_cycle_through_two_handles_after_some_new_ones() -> None:
    handles = loop(process(), DEVICE_0, 60)
    assert len(set(handles[:5])) == 5
    assert handles[5] in handles[:5]  # the sixth is the first that came back
    assert len(set(handles[8:])) == 2
    assert handles[0] not in handles[1:]


def test_host_pools_cycle_through_one_handle() -> None:
    for location in (HOST_LOCATION, NODE_0):
        handles = loop(process(), location, 30)
        assert len(set(handles[:2])) == 2
        assert set(handles[2:]) == {handles[1]}


def test_of_sixteen_destroyed_five_handles_come_back() -> None:
    driver = process()
    first = [driver.mem_pool_create(PoolProperties(DEVICE_0, GIB)) for _ in range(16)]
    for pool in first:
        driver.mem_pool_destroy(pool)
    second = [driver.mem_pool_create(PoolProperties(DEVICE_0, GIB)) for _ in range(32)]
    back = [position for position, pool in enumerate(second) if pool in first]
    assert len(set(second)) == 32
    assert len(back) == 5
    assert max(back) <= 7
    assert first[0] not in second


@pytest.mark.parametrize("location", [DEVICE_0, HOST_LOCATION], ids=["device", "host"])
def test_the_very_first_handle_never_comes_back(location: Location) -> None:
    driver = process()
    pools = [driver.mem_pool_create(PoolProperties(location, GIB)) for _ in range(6)]
    driver.mem_pool_destroy(pools[0])
    assert driver.mem_pool_create(PoolProperties(location, GIB)) not in pools
    driver.mem_pool_destroy(pools[1])
    assert driver.mem_pool_create(PoolProperties(location, GIB)) == pools[1]


def test_places_do_not_share_handles() -> None:
    driver = process()
    kinds = [
        PoolProperties(DEVICE_0, GIB),
        PoolProperties(device_location(1), GIB),
        PoolProperties(HOST_LOCATION, GIB),
        PoolProperties(NODE_0, GIB),
        PoolProperties(DEVICE_0, GIB, handle_types=1),
        PoolProperties(DEVICE_0, 0, AllocationType.MANAGED),
    ]
    seen: list[set[int]] = [set() for _ in kinds]
    for _ in range(60):
        for kind, handles in zip(kinds, seen, strict=True):
            pool = driver.mem_pool_create(kind)
            handles.add(pool)
            driver.mem_pool_destroy(pool)
    assert len(set.union(*seen)) == sum(len(handles) for handles in seen)


def test_a_handle_waits_for_the_last_allocation() -> None:
    driver = process()
    loop(driver, HOST_LOCATION, 3)
    pool = driver.mem_pool_create(PoolProperties(HOST_LOCATION, GIB))
    first, second = (driver.mem_alloc_from_pool_async(1024, pool, own_stream(driver)) for _ in range(2))
    driver.mem_pool_destroy(pool)
    other = driver.mem_pool_create(PoolProperties(HOST_LOCATION, GIB))
    assert other != pool
    driver.mem_free_async(first, own_stream(driver))
    assert driver.mem_pool_create(PoolProperties(HOST_LOCATION, GIB)) != pool
    driver.mem_free_async(second, own_stream(driver))
    assert driver.mem_pool_create(PoolProperties(HOST_LOCATION, GIB)) == pool
    assert refusal(lambda: driver.mem_free_async(second, own_stream(driver))) == "INVALID_VALUE"


@pytest.mark.parametrize(
    ("properties", "limit"),
    [(PoolProperties(DEVICE_0), 468), (PoolProperties(DEVICE_0, 100 * GIB), 654)],
    ids=["default-size", "100-GiB"],
)
def test_pools_before_address_space_runs_out(properties: PoolProperties, limit: int) -> None:
    driver = process()
    pools = [driver.mem_pool_create(properties) for _ in range(limit)]
    assert refusal(lambda: driver.mem_pool_create(properties)) == "OUT_OF_MEMORY"
    assert refusal(lambda: driver.mem_pool_create(PoolProperties(HOST_LOCATION))) == "SUCCESS"
    driver.mem_pool_destroy(pools[0])
    assert refusal(lambda: driver.mem_pool_create(properties)) == "SUCCESS"


# --- the fault of recycled handles ---


def tainted(spec: str, location: Location = DEVICE_0) -> list[int]:
    """Flags of device 1 on new pools, when each pool before was destroyed with access for it."""
    driver = process(spec)
    found = []
    for _ in range(30):
        pool = driver.mem_pool_create(PoolProperties(location, GIB))
        found.append(driver.mem_pool_get_access(pool, device_location(1)))
        grant(driver, pool, 1)
        driver.mem_pool_destroy(pool)
    return found


def test_a_recycled_handle_inherits_only_with_the_fault() -> None:
    assert set(tainted("4")) == {0}
    faulty = tainted("4,fault=recycled-handle")
    assert faulty[:5] == [0] * 5
    assert set(faulty[8:]) == {3}


def test_host_pools_inherit_nothing_even_with_the_fault() -> None:
    assert set(tainted("4,fault=recycled-handle", HOST_LOCATION)) == {0}


def test_cleared_access_is_not_inherited() -> None:
    driver = process("4,fault=recycled-handle")
    for _ in range(30):
        pool = driver.mem_pool_create(PoolProperties(DEVICE_0, GIB))
        assert [driver.mem_pool_get_access(pool, device_location(d)) for d in range(4)] == [3, 0, 0, 0]
        grant(driver, pool, 1, 2)
        driver.mem_pool_set_access(pool, [AccessEntry(device_location(d), AccessFlags.NONE) for d in (1, 2)])
        driver.mem_pool_destroy(pool)


# --- access without P2P ---


def test_a_grant_without_p2p_fails_at_the_next_allocation() -> None:
    driver = process("no-p2p-2")
    pool = driver.mem_pool_create(PoolProperties(DEVICE_0))
    grant(driver, pool, 1)
    assert driver.mem_pool_get_access(pool, device_location(1)) == AccessFlags.READWRITE
    assert refusal(lambda: driver.mem_alloc_from_pool_async(1024, pool, own_stream(driver))) == "INVALID_DEVICE"
    driver.mem_pool_set_access(pool, [AccessEntry(device_location(1), AccessFlags.NONE)])
    assert driver.mem_alloc_from_pool_async(1024, pool, own_stream(driver))


def test_a_pool_that_was_allocated_from_refuses_it_at_once() -> None:
    driver = process("no-p2p-2")
    pool = driver.mem_pool_create(PoolProperties(DEVICE_0))
    driver.mem_free_async(driver.mem_alloc_from_pool_async(1024, pool, own_stream(driver)), own_stream(driver))
    assert refusal(lambda: grant(driver, pool, 1)) == "INVALID_DEVICE"
    assert driver.mem_pool_get_access(pool, device_location(1)) == AccessFlags.NONE
    grant(driver, pool, 0)
    driver.mem_pool_set_access(pool, [AccessEntry(device_location(1), AccessFlags.NONE)])


def test_direction_counts() -> None:
    """On asym-3 device 1 reaches device 0, not the other way round."""
    driver = process("asym-3")
    for owner, accessor, code in ((0, 1, "SUCCESS"), (1, 0, "INVALID_DEVICE")):
        pool = driver.mem_pool_create(PoolProperties(device_location(owner)))
        grant(driver, pool, accessor)
        assert refusal(lambda pool=pool: driver.mem_alloc_from_pool_async(1024, pool, own_stream(driver))) == code  # type: ignore[misc]


# --- scripted failures ---


def scripted(directory: Path, *tables: str) -> Process:
    """Four devices, and these failures."""
    failures = "\n".join(f"[[failure]]\n{table}" for table in tables)
    return process(machine_file(directory, f"[[device]]\ncount = 4\n[p2p]\nall = true\n{failures}"))


def test_a_failure_comes_after_so_many_calls_for_so_many(tmp_path: Path) -> None:
    driver = scripted(tmp_path, 'call = "cuDeviceGetName"\ncode = 999\nafter = 2\ntimes = 3')
    assert [refusal(lambda: driver.device_get_name(0)) for _ in range(7)] == [
        *("SUCCESS", "SUCCESS", "UNKNOWN", "UNKNOWN", "UNKNOWN", "SUCCESS", "SUCCESS")
    ]


def test_a_failure_without_an_end(tmp_path: Path) -> None:
    driver = scripted(tmp_path, 'call = "cuMemPoolCreate"\ncode = "CUDA_ERROR_OPERATING_SYSTEM"')
    create = [refusal(lambda: driver.mem_pool_create(PoolProperties(DEVICE_0))) for _ in range(5)]
    assert create == ["OPERATING_SYSTEM"] * 5


def test_several_failures_of_one_call_count_each_for_itself(tmp_path: Path) -> None:
    table = 'call = "cuDeviceGetName"\ncode = {}\nafter = {}\ntimes = 1'
    driver = scripted(tmp_path, table.format(999, 0), table.format(304, 1), table.format(801, 3))
    assert [refusal(lambda: driver.device_get_name(0)) for _ in range(5)] == [
        *("UNKNOWN", "OPERATING_SYSTEM", "SUCCESS", "NOT_SUPPORTED", "SUCCESS")
    ]


def test_every_call_counts_once(tmp_path: Path) -> None:
    """Also one that asks several things of the machine."""
    calls: dict[str, Callable[[Process, int], object]] = {
        "cuDeviceSetMemPool": lambda driver, pool: driver.device_set_mem_pool(0, pool),
        "cuDeviceGetMemPool": lambda driver, pool: driver.device_get_mem_pool(0),
        "cuDeviceGetDefaultMemPool": lambda driver, pool: driver.device_get_default_mem_pool(0),
        "cuDeviceGetP2PAttribute": lambda driver, pool: driver.device_get_p2p_attribute(2, 0, 1),
        "cuDeviceCanAccessPeer": lambda driver, pool: driver.device_can_access_peer(0, 1),
        "cuDeviceGetAttribute": lambda driver, pool: driver.device_get_attribute(115, 0),
        "cuMemPoolSetAttribute": lambda driver, pool: driver.mem_pool_set_attribute(pool, 4, 0),
        "cuMemPoolTrimTo": lambda driver, pool: driver.mem_pool_trim_to(pool, 0),
        "cuMemPoolSetAccess": lambda driver, pool: grant(driver, pool, 1, 2),
        "cuMemPoolGetAccess": lambda driver, pool: driver.mem_pool_get_access(pool, HOST_LOCATION),
        "cuMemAllocFromPoolAsync": lambda driver, pool: driver.mem_alloc_from_pool_async(1, pool, own_stream(driver)),
    }
    for name, call in calls.items():
        driver = scripted(tmp_path, f'call = "{name}"\ncode = 999\nafter = 2\ntimes = 1')
        pool = driver.mem_pool_create(PoolProperties(DEVICE_0))
        found = [refusal(lambda call=call, driver=driver, pool=pool: call(driver, pool)) for _ in range(4)]  # type: ignore[misc]
        assert found == ["SUCCESS", "SUCCESS", "UNKNOWN", "SUCCESS"], name


def test_a_failure_of_one_device_is_of_all_calls_that_name_it_or_its_pools(tmp_path: Path) -> None:
    device = "\ncode = 999\ndevice = 1"
    names = ("cuDeviceGetName", "cuDeviceCanAccessPeer", "cuMemPoolCreate", "cuMemPoolGetAccess", "cuMemPoolSetAccess")
    driver = scripted(tmp_path, *(f'call = "{name}"{device}' for name in names))
    assert [refusal(lambda d=d: driver.device_get_name(d)) for d in range(3)] == ["SUCCESS", "UNKNOWN", "SUCCESS"]  # type: ignore[misc]
    peers = {pair: refusal(lambda pair=pair: driver.device_can_access_peer(*pair)) for pair in ((0, 1), (1, 0), (0, 2))}  # type: ignore[misc]
    assert peers == {(0, 1): "UNKNOWN", (1, 0): "UNKNOWN", (0, 2): "SUCCESS"}
    assert refusal(lambda: driver.mem_pool_create(PoolProperties(device_location(1)))) == "UNKNOWN"
    ours, theirs = driver.device_get_default_mem_pool(0), driver.device_get_default_mem_pool(1)
    assert refusal(lambda: driver.mem_pool_get_access(ours, device_location(2))) == "SUCCESS"
    assert refusal(lambda: driver.mem_pool_get_access(ours, device_location(1))) == "UNKNOWN"
    assert refusal(lambda: driver.mem_pool_get_access(theirs, HOST_LOCATION)) == "UNKNOWN"
    assert refusal(lambda: grant(driver, ours, 2, 3)) == "SUCCESS"
    assert refusal(lambda: grant(driver, ours, 2, 1)) == "UNKNOWN"
    # Node 1 is not device 1.
    node = driver.mem_pool_create(PoolProperties(NODE_0))
    assert refusal(lambda: driver.mem_pool_get_access(node, Location(LocationType.HOST_NUMA, 1))) == "SUCCESS"


def test_a_failed_call_has_done_nothing(tmp_path: Path) -> None:
    driver = scripted(tmp_path, 'call = "cuMemPoolSetAccess"\ncode = 999\ntimes = 1')
    pool = driver.device_get_default_mem_pool(0)
    assert refusal(lambda: grant(driver, pool, 1)) == "UNKNOWN"
    assert driver.mem_pool_get_access(pool, device_location(1)) == AccessFlags.NONE


# --- the guard, and what it guards against ---


def test_the_guard_stops_dead_and_invented_handles() -> None:
    driver = GuardedDriver(process())
    pool = driver.mem_pool_create(PoolProperties(DEVICE_0))
    driver.mem_pool_get_access(pool, DEVICE_0)
    driver.mem_pool_destroy(pool)
    entries = [AccessEntry(device_location(1), AccessFlags.READWRITE)]
    for handle in (pool, 0x1234, 0):
        for call in (
            lambda handle: driver.mem_pool_get_access(handle, DEVICE_0),
            lambda handle: driver.mem_pool_set_access(handle, entries),
            lambda handle: driver.mem_pool_get_attribute(handle, 4),
            lambda handle: driver.mem_pool_set_attribute(handle, 4, 0),
            lambda handle: driver.mem_pool_trim_to(handle, 0),
            lambda handle: driver.mem_pool_destroy(handle),
            lambda handle: driver.device_set_mem_pool(0, handle),
            lambda handle: driver.mem_alloc_from_pool_async(1024, handle, 0),
        ):
            with pytest.raises(HandleMisuseError):
                call(handle)


def test_the_guard_knows_default_current_and_recycled_pools() -> None:
    plain = process()
    driver = GuardedDriver(plain)
    default = driver.device_get_default_mem_pool(0)
    assert driver.mem_pool_get_access(default, DEVICE_0) == AccessFlags.READWRITE
    own = plain.mem_pool_create(PoolProperties(device_location(1)))
    plain.device_set_mem_pool(1, own)
    with pytest.raises(HandleMisuseError):
        driver.mem_pool_get_access(own, DEVICE_0)
    assert driver.device_get_mem_pool(1) == own
    driver.mem_pool_get_access(own, DEVICE_0)
    handles = set()
    for _ in range(20):
        pool = driver.mem_pool_create(PoolProperties(DEVICE_0, GIB))
        driver.mem_pool_get_access(pool, DEVICE_0)
        driver.mem_pool_destroy(pool)
        handles.add(pool)
    assert len(handles) < 20


def test_a_pool_that_would_not_be_destroyed_stays_alive_for_the_guard() -> None:
    driver = GuardedDriver(process())
    default = driver.device_get_default_mem_pool(0)
    assert refusal(lambda: driver.mem_pool_destroy(default)) == "INVALID_VALUE"
    driver.mem_pool_get_access(default, DEVICE_0)


def test_without_the_guard_the_driver_reads_freed_memory_or_dies() -> None:
    driver = process()
    pool = driver.mem_pool_create(PoolProperties(DEVICE_0))
    driver.mem_pool_destroy(pool)
    assert driver.mem_pool_get_access(pool, DEVICE_0) == AccessFlags.READWRITE
    assert refusal(lambda: driver.mem_pool_destroy(pool)) == "INVALID_VALUE"
    with pytest.raises(SimulatedCrash):
        driver.mem_pool_get_access(0x1234, DEVICE_0)


# --- processes ---


def test_a_forked_child_has_no_driver() -> None:
    """In an interpreter of its own: this one has threads that a fork would lose."""
    script = """
import os
from mempool_cli.driver.sim.machine import Machine
from mempool_cli.driver.sim.profile import parse_spec
from mempool_cli.errors import DriverError

driver = Machine(parse_spec("2")).process()
driver.init()
pool = driver.device_get_default_mem_pool(0)
child = os.fork()
if not child:
    for call in (driver.init, driver.device_get_count, lambda: driver.mem_pool_get_attribute(pool, 4)):
        try:
            call()
        except DriverError as error:
            print(error.words.name, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(driver.device_get_count())
"""
    package = str(Path(parse_spec.__code__.co_filename).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.stdout.split(), done.stderr) == (["CUDA_ERROR_NOT_INITIALIZED"] * 3 + ["2"], "")


def test_nothing_works_before_init() -> None:
    driver = Machine(parse_spec("2")).process()
    assert driver.driver_get_version() == 13000
    for call in (
        driver.device_get_count,
        lambda: driver.device_get_name(0),
        lambda: driver.device_get_default_mem_pool(0),
        lambda: driver.mem_pool_create(PoolProperties(DEVICE_0)),
        lambda: driver.device_set_mem_pool(0, 1),
    ):
        assert refusal(call) == "NOT_INITIALIZED"


def test_pools_belong_to_one_process() -> None:
    machine = Machine(parse_spec("2"))
    ours, theirs = machine.process(), machine.process()
    for driver in (ours, theirs):
        driver.init()
    grant(ours, ours.device_get_default_mem_pool(0), 1)
    assert theirs.mem_pool_get_access(theirs.device_get_default_mem_pool(0), device_location(1)) == AccessFlags.NONE


def test_the_words_for_compute_modes_are_the_drivers(tmp_path: Path) -> None:
    file = tmp_path / "modes.toml"
    words = [mode.name.lower().replace("_", "-") for mode in ComputeMode]
    file.write_text("".join(f'[[device]]\ncompute_mode = "{word}"\n' for word in words))
    assert [card.compute_mode for card in parse_spec(str(file)).devices] == list(ComputeMode)
