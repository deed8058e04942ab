"""Each path by itself: what it comes to on a machine with a fault, where nobody says that there is one."""

from __future__ import annotations

from pathlib import Path as File

import pytest
from cli.machines import failure, machine

from mempool_cli.model import Damage, PathResult
from mempool_cli.verify import paths
from mempool_cli.verify.bench import Unready
from mempool_cli.verify.pair import ORDERS, PATHS
from mempool_cli.verify.sides import Device
from mempool_cli.verify.trial import Granted, Ready

from .here import SIZES, parts, tried, verdicts

WRITES = ("kernel-write", "peer-copy-write", "copy-write")
READS = ("kernel-read", "peer-copy-read", "copy-read")
COPIES = ("peer-copy-write", "peer-copy-read", "copy-write", "copy-read")
TWO = "[[device]]\ncount = 2\n[p2p]\nall = true\n"


def expected(default: str = "ok", **groups: tuple[str, ...]) -> dict[str, str]:
    """The verdict of each path: those in a group have its name."""
    return {path: next((name for name, paths in groups.items() if path in paths), default) for path in PATHS}


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        ("", expected()),
        ("drop-writes", expected(dropped=(*WRITES, "atomic-add"))),
        ("lost-after-setaccess", expected(corrupt=("peer-copy-write", "copy-write"))),
        ("mirror", expected(mirror=(*WRITES, *READS), dropped=("atomic-add",))),
        ("corrupt", expected(corrupt=(*WRITES, *READS))),
        ("refuse", expected(refused=COPIES)),
    ],
)
def test_between_devices(fault: str, wanted: dict[str, str]) -> None:
    spec = f"3,fault={fault}:0-1" if fault else "3"
    assert verdicts(spec) == wanted
    assert verdicts(spec, 1, 0) == expected()
    assert verdicts(spec, 0, 2) == expected()


HOST_SKIPS = ("atomic-add", "peer-copy-write", "peer-copy-read")


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        ("", expected(skipped=HOST_SKIPS)),
        ("drop-writes", expected(skipped=HOST_SKIPS, dropped=("kernel-write", "copy-write"))),
        ("mirror", expected(skipped=HOST_SKIPS, mirror=("kernel-write", "kernel-read", "copy-write", "copy-read"))),
        ("corrupt", expected(skipped=HOST_SKIPS, corrupt=("kernel-write", "kernel-read", "copy-write", "copy-read"))),
        ("refuse", expected(skipped=HOST_SKIPS, refused=("copy-write", "copy-read"))),
    ],
)
def test_memory_of_the_host(fault: str, wanted: dict[str, str]) -> None:
    assert verdicts(f"2,fault={fault}:host-1" if fault else "2", None, 1) == wanted
    assert verdicts(f"2,fault={fault}:host-0" if fault else "2", None, 1) == expected(skipped=HOST_SKIPS)


def test_a_device_with_itself() -> None:
    assert verdicts("1", 0, 0) == expected()
    assert verdicts("2,fault=mirror", 0, 0) == expected()


def test_what_is_told_before_the_paths() -> None:
    told = parts("2", 0, 1)
    assert told[0] == Ready(native_atomics=True)
    assert [part for part in told if isinstance(part, Granted)] == [Granted(flags=3)] * 2
    assert parts("2", None, 1)[0] == Ready(native_atomics=False)


def test_all_sizes_and_repeats_are_tried() -> None:
    result = tried("2")["allocate-first", "copy-read"]
    assert result == PathResult(
        order="allocate-first", path="copy-read", verdict="ok", why="arrived", size=SIZES[-1], repeat=2
    )


# --- what is wrong, and where ---


def test_nothing_arrived() -> None:
    result = tried("2,fault=drop-writes")["grant-first", "kernel-write"]
    assert (result.size, result.repeat, result.damage) == (8, 1, Damage(first=0, wrong=1, kind="sentinel"))
    assert result.why == "nothing arrived, and the driver said SUCCESS"


def test_only_the_writer_sees_it() -> None:
    result = tried("2,fault=mirror")["grant-first", "kernel-write"]
    assert result.why == "the writer sees its own data, the owner does not"
    assert result.damage == Damage(first=0, wrong=1, kind="sentinel")


def test_some_bytes_are_others() -> None:
    """The first 8 bytes are right: only a larger size shows it."""
    result = tried("2,fault=corrupt")["grant-first", "copy-read"]
    assert (result.size, result.damage) == (1 << 16, Damage(first=4096, wrong=1, kind="other"))
    large = tried("2,fault=corrupt", sizes=(1 << 20,))["grant-first", "kernel-write"]
    assert (large.size, large.damage) == (1 << 20, Damage(first=4096, wrong=16, kind="other"))


def test_refused_is_told_with_the_drivers_words() -> None:
    result = tried("2,fault=refuse")["grant-first", "peer-copy-write"]
    assert result.driver is not None
    assert (result.driver.call, result.driver.code) == ("cuMemcpyPeerAsync", 1)


@pytest.mark.parametrize(("spec", "verdict"), [("2", "inconclusive"), ("2,fault=drop-writes", "dropped")])
def test_who_does_not_add_while_the_other_does_proves_nothing(
    spec: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum that is right is no proof then; one that is wrong is one all the same."""
    monkeypatch.setattr(paths, "_START_SECONDS", 0.0)
    monkeypatch.setattr(Device, "in_time", property(lambda device: device.ordinal == 0))
    result = tried(spec)["grant-first", "atomic-add"]
    assert result.verdict == verdict
    if verdict == "inconclusive":
        assert result.why == "the sum is right, but the two did not add at the same time"


@pytest.mark.parametrize(("owner", "given"), [(0, False), (1, True)], ids=["two", "itself"])
def test_the_start_is_given_when_both_are_there(owner: int, given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    add, seen = Device.add, []

    def watched(device: Device, pointer: int, value: int, times: int, threads: int, start: int) -> None:
        if times:
            seen.append((device.ordinal, any(device._driver.load(start, 8))))
        add(device, pointer, value, times, threads, start)

    monkeypatch.setattr(Device, "add", watched)
    (result,) = tried("2", owner, trials=(("grant-first", "atomic-add"),), repeat=1).values()
    assert result.verdict == "ok"
    assert seen == [(owner, given), (1, given)]


def test_one_device_alone_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_START_SECONDS", 0.0)
    assert tried("1", 0, 0)["grant-first", "atomic-add"].verdict == "ok"


# --- before anything goes ---


def test_the_grant_is_refused(tmp_path: File) -> None:
    found = tried(machine(tmp_path, TWO, failure("cuMemPoolSetAccess", "CUDA_ERROR_NOT_SUPPORTED", times=1)))
    first, second = ([found[order, path].verdict for path in PATHS] for order in ORDERS)
    assert (set(first), set(second)) == ({"refused"}, {"ok"})
    result = found["grant-first", "kernel-write"]
    assert result.why == "the grant was refused"
    assert result.driver is not None
    assert (result.driver.call, result.driver.name) == ("cuMemPoolSetAccess", "CUDA_ERROR_NOT_SUPPORTED")


@pytest.mark.parametrize(
    ("scripted", "verdict", "why"),
    [
        (
            failure("cuMemAllocFromPoolAsync", "CUDA_ERROR_OUT_OF_MEMORY", device=0, after=2),
            "inconclusive",
            "out of memory",
        ),
        (failure("cuMemPoolCreate", "CUDA_ERROR_OUT_OF_MEMORY", after=2), "inconclusive", "out of memory"),
        (failure("cuMemPoolGetAccess"), "error", "cuMemPoolGetAccess failed before anything was tried"),
        (
            failure("cuMemHostAlloc", "CUDA_ERROR_OUT_OF_MEMORY", after=2),
            "inconclusive",
            "out of memory",
        ),
    ],
)
def test_there_is_no_bench(tmp_path: File, scripted: str, verdict: str, why: str) -> None:
    found = tried(machine(tmp_path, TWO, scripted))
    assert {(result.verdict, result.why) for result in found.values()} == {(verdict, why)}
    assert len(found) == len(PATHS) * len(ORDERS)


@pytest.mark.parametrize(
    ("scripted", "verdict", "why"),
    [
        (
            failure("cuDevicePrimaryCtxRetain", "CUDA_ERROR_DEVICE_UNAVAILABLE", device=1),
            "inconclusive",
            "a device is in exclusive-process mode and taken, or in prohibited mode",
        ),
        (failure("cuModuleLoadData"), "error", "cuModuleLoadData failed before anything was tried"),
        (failure("cuInit", "CUDA_ERROR_SYSTEM_NOT_READY"), "error", "the CUDA driver does not start"),
    ],
)
def test_there_are_no_sides(tmp_path: File, scripted: str, verdict: str, why: str) -> None:
    (only,) = parts(machine(tmp_path, TWO, scripted), 0, 1)
    assert isinstance(only, Unready)
    assert (only.verdict, only.why) == (verdict, why)


def test_a_prohibited_device(tmp_path: File) -> None:
    cards = '[[device]]\n[[device]]\ncompute_mode = "prohibited"\n[p2p]\nall = true\n'
    (only,) = parts(machine(tmp_path, cards), 1, 0)
    assert isinstance(only, Unready)
    assert only.verdict == "inconclusive"


def test_the_control_fails(tmp_path: File) -> None:
    """The third plain copy is the first of the control: accessor to pinned memory, pinned memory to owner."""
    spec = machine(tmp_path, TWO, failure("cuMemcpyAsync", times=1))
    found = tried(spec)
    assert {found["grant-first", path].why for path in PATHS} == {"the control, by way of the host, failed"}
    assert {found["grant-first", path].verdict for path in PATHS} == {"inconclusive"}
    assert {found["allocate-first", path].verdict for path in PATHS} == {"ok"}


# --- a fault ends the process; what follows is tried in another one ---


@pytest.mark.parametrize(
    ("after", "path", "verdict", "why"),
    [
        (13, "kernel-write", "error", "cuStreamSynchronize beside the access itself failed"),
        (14, "kernel-write", "faulted", "it failed while it ran, although access is granted"),
        (26, "kernel-read", "inconclusive", "the write that comes before the read failed"),
        (28, "kernel-read", "faulted", "it failed while it ran, although access is granted"),
    ],
)
def test_a_fault_ends_it(tmp_path: File, after: int, path: str, verdict: str, why: str) -> None:
    """The accessor waits so often before: for its memory, the canary, the control, and what lies before the access."""
    fault = failure("cuStreamSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", device=1, after=after)
    results = list(tried(machine(tmp_path, TWO, fault)).values())
    last = results.pop()
    assert (last.path, last.verdict, last.why) == (path, verdict, why)
    assert last.driver is not None
    assert last.driver.code == 700
    assert {result.verdict for result in results} <= {"ok"}


def test_only_what_is_left_is_tried() -> None:
    left = (("grant-first", "copy-read"), ("allocate-first", "kernel-write"))
    assert list(tried("2", trials=left)) == list(left)
