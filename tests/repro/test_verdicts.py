"""Something between mempool and the driver grants, clears or ignores: it cannot bring about a wrong verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from cli.machines import process

from mempool_cli.driver.port import AccessEntry, AccessFlags, Location, PoolProperties, device_location
from mempool_cli.errors import DriverError
from mempool_cli.repro import every_bug
from mempool_cli.repro.judge import judge
from mempool_cli.repro.language import Bug, Rule

from .trials_helper import interpreted

ACCESSOR = device_location(1)
BUGS = list(every_bug().values())
HISTORIES = ("never-allocated", "allocated")


class Between:
    """Passes every call on."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)


class GrantsNothing(Between):
    """cuMemPoolSetAccess answers SUCCESS and does nothing."""

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None:
        pass


class GrantsNothingSometimes(Between):
    """Every 100th cuMemPoolSetAccess does nothing."""

    calls = 0

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None:
        self.calls += 1
        if self.calls % 100:
            self.driver.mem_pool_set_access(pool, entries)


class GrantsFirst(Between):
    """Only the first cuMemPoolSetAccess does something."""

    done = False

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None:
        if not self.done:
            self.driver.mem_pool_set_access(pool, entries)
            self.done = True
        elif entries[0].flags == AccessFlags.NONE:
            self.driver.mem_pool_set_access(pool, entries)


class Clears(Between):
    """Access is gone as soon as it was seen."""

    def mem_pool_get_access(self, pool: int, location: Location) -> int:
        flags: int = self.driver.mem_pool_get_access(pool, location)
        if flags:
            self.driver.mem_pool_set_access(pool, [AccessEntry(location, AccessFlags.NONE)])
        return flags


class GrantsNew(Between):
    """New pools come with access."""

    def mem_pool_create(self, properties: PoolProperties) -> int:
        pool: int = self.driver.mem_pool_create(properties)
        self.driver.mem_pool_set_access(pool, [AccessEntry(ACCESSOR, AccessFlags.READWRITE)])
        return pool


class GrantsRecycled(Between):
    """Pools whose handle was seen before come with access, whoever had it."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.seen: set[int] = set()

    def mem_pool_create(self, properties: PoolProperties) -> int:
        pool: int = self.driver.mem_pool_create(properties)
        if pool in self.seen:
            self.driver.mem_pool_set_access(pool, [AccessEntry(ACCESSOR, AccessFlags.READWRITE)])
        self.seen.add(pool)
        return pool


class GrantsLate(Between):
    """Some library starts to grant access to all new pools after a while."""

    created = 0

    def mem_pool_create(self, properties: PoolProperties) -> int:
        pool: int = self.driver.mem_pool_create(properties)
        self.created += 1
        if self.created > 150:
            self.driver.mem_pool_set_access(pool, [AccessEntry(ACCESSOR, AccessFlags.READWRITE)])
        return pool


class OneComesBack(Between):
    """Of a driver that never gives a handle out again: here one does, again and again."""

    ONE = 0x7700

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.pool = 0

    def _real(self, pool: int) -> int:
        return self.pool if pool == self.ONE else pool

    def mem_pool_create(self, properties: PoolProperties) -> int:
        pool: int = self.driver.mem_pool_create(properties)
        if self.pool:
            return pool
        self.pool = pool
        return self.ONE

    def mem_pool_destroy(self, pool: int) -> None:
        self.driver.mem_pool_destroy(self._real(pool))
        if pool == self.ONE:
            self.pool = 0

    def mem_pool_get_access(self, pool: int, location: Location) -> int:
        return int(self.driver.mem_pool_get_access(self._real(pool), location))

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None:
        self.driver.mem_pool_set_access(self._real(pool), entries)

    def mem_alloc_from_pool_async(self, size: int, pool: int, stream: int) -> int:
        return int(self.driver.mem_alloc_from_pool_async(size, self._real(pool), stream))


def recycled(between: Callable[[Any], Any], spec: str, history: str, *, arm: str = "none") -> tuple[str, str]:
    return interpreted(between(process(spec)), "recycled-handle", "device", arm=arm, history=history)


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize(
    ("spec", "verdict", "why"),
    [
        ("4", "not-affected", "none of 75 recycled handles had access"),
        ("4,fault=recycled-handle", "affected", "access was inherited by 75 of 75"),
    ],
)
def test_nothing_between(spec: str, verdict: str, why: str, history: str) -> None:
    assert recycled(Between, spec, history) == (verdict, why)


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("spec", ["4", "4,fault=recycled-handle"])
@pytest.mark.parametrize(
    ("between", "why"),
    [
        (GrantsNothing, "256 grants did not take"),
        (Clears, "256 grants were gone before destroy"),
        (GrantsNew, "a new handle had access: something else grants it"),
        (GrantsRecycled, "a handle that was never granted had access"),
        (GrantsLate, "a new handle had access: something else grants it"),
    ],
)
def test_what_is_between_leaves_it_open(between: type[Between], why: str, spec: str, history: str) -> None:
    assert recycled(between, spec, history) == ("inconclusive", why)


@pytest.mark.parametrize("history", HISTORIES)
def test_some_grants_do_not_take(history: str) -> None:
    assert recycled(GrantsNothingSometimes, "4", history) == ("inconclusive", "2 grants did not take")


@pytest.mark.parametrize("history", HISTORIES)
def test_one_handle_is_not_enough(history: str) -> None:
    why = "only one tainted handle came back, again and again"
    assert recycled(OneComesBack, "4,fault=fresh-handles", history) == ("inconclusive", why)


def test_a_refused_cleanup_did_not_clear() -> None:
    """The call of the arm is refused, and the access is gone all the same: that tells nothing of the arm."""
    assert recycled(Clears, "4", "never-allocated", arm="one-call-with-owner")[0] == "inconclusive"


@pytest.mark.parametrize("fault", ["", ",fault=host-pool-revoke"])
@pytest.mark.parametrize("history", HISTORIES)
def test_host_pool_revoke_without_grants(fault: str, history: str) -> None:
    driver = GrantsNothing(process(f"4{fault}"))
    found = interpreted(driver, "host-pool-revoke", "host", arm="revoke", history=history)
    assert found[0] == "inconclusive"
    assert "grant" in found[1]


@pytest.mark.parametrize("history", HISTORIES)
def test_host_pool_revoke_with_one_grant(history: str) -> None:
    """Seven pools that never had access say nothing of revoking it."""
    driver = GrantsFirst(process())
    assert interpreted(driver, "host-pool-revoke", "host", arm="revoke", history=history)[0] == "inconclusive"


@pytest.mark.parametrize("fault", ["", ",fault=honest-pointer-flags"])
def test_pointer_flags_of_pools_with_access(fault: str) -> None:
    driver = GrantsNew(process(f"4{fault}"))
    found = interpreted(driver, "pointer-flags", "host", arm="ask", history="allocated")
    assert found == ("inconclusive", "only 0 of 8 new pools had no access")


@pytest.mark.parametrize("variant", ["device", "host"])
def test_owner_in_batch_without_a_grant(variant: str) -> None:
    driver = GrantsNothing(process())
    found = interpreted(driver, "owner-in-batch", variant, arm="clear", history="never-allocated")
    assert found == ("inconclusive", "the grant did not take")


@pytest.mark.parametrize("variant", ["device", "host"])
def test_owner_in_batch_cleared_by_others(variant: str) -> None:
    """The call is refused, so it was not what took the access away."""
    driver = Clears(process())
    assert interpreted(driver, "owner-in-batch", variant, arm="clear", history="never-allocated")[0] == "inconclusive"


def test_grant_without_p2p_without_a_grant() -> None:
    """No allocation can fail of a grant that did not take."""
    driver = GrantsNothing(process("no-p2p-2"))
    found = interpreted(driver, "grant-without-p2p", "unreachable", arm="grant", history="never-allocated")
    assert found[0] == "inconclusive"


class AllocatesNothing(Between):
    """No pool gives memory, granted or not."""

    def mem_alloc_from_pool_async(self, size: int, pool: int, stream: int) -> int:
        raise DriverError("cuMemAllocFromPoolAsync", "CUDA_ERROR_OUT_OF_MEMORY", 2)


def test_grant_without_p2p_without_memory() -> None:
    """The allocation would have failed without the grant too."""
    driver = AllocatesNothing(process("no-p2p-2"))
    found = interpreted(driver, "grant-without-p2p", "unreachable", arm="grant", history="never-allocated")
    assert found[0] == "inconclusive"


class AfterGrants(Between):
    """Once access was set, what the accessor does to memory goes wrong."""

    granted = False

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None:
        self.granted = True
        self.driver.mem_pool_set_access(pool, entries)

    def memcpy_peer_async(
        self, destination: int, destination_context: int, source: int, source_context: int, size: int, stream: int
    ) -> None:
        if not self.granted:
            self.driver.memcpy_peer_async(destination, destination_context, source, source_context, size, stream)


class LeavesZeros(AfterGrants):
    """The copies leave zeros."""

    byte = 0

    def memcpy_peer_async(self, destination: int, *arguments: Any) -> None:
        if self.granted:
            size, stream = arguments[-2:]
            self.driver.memset_d8_async(destination, self.byte, size, stream)
        else:
            self.driver.memcpy_peer_async(destination, *arguments)


class LeavesRubbish(LeavesZeros):
    """They leave something else."""

    byte = 0x11


class LosesPart(LeavesZeros):
    """The last word of a copy does not arrive."""

    def memcpy_peer_async(self, destination: int, *arguments: Any) -> None:
        self.driver.memcpy_peer_async(destination, *arguments)
        if self.granted:
            size, stream = arguments[-2:]
            self.driver.memset_d8_async(destination + size - 4, 0, 4, stream)


class LosesOne(AfterGrants):
    """One copy is lost, the sixth."""

    copies = 0

    def memcpy_peer_async(self, *arguments: Any) -> None:
        self.copies += 1
        if self.copies != 6:
            self.driver.memcpy_peer_async(*arguments)


class LosesKernelsToo(AfterGrants):
    """Kernels end well and write nothing, as copies do."""

    def launch_kernel(self, *arguments: Any) -> None:
        pass


def peer_write_lost(driver: Any, history: str) -> tuple[str, str]:
    return interpreted(driver, "peer-write-lost", "device", arm="granted", history=history)


ORDERS = ("granted-first", "allocated-first")
ARRIVES = "where a kernel's write arrived"
PATH = "where a copy is lost, a kernel's write is too: the path between the devices may be broken"


@pytest.mark.parametrize("history", ORDERS)
@pytest.mark.parametrize(
    ("between", "verdict", "why"),
    [
        (Between, "not-affected", "all 8 copies arrived"),
        (AfterGrants, "affected", f"8 of 8 copies wrote nothing, {ARRIVES}"),
        (LeavesZeros, "affected", f"8 of 8 copies left zeros, {ARRIVES}"),
        (LeavesRubbish, "affected", f"8 of 8 copies left something else, {ARRIVES}"),
        (LosesOne, "affected", f"1 of 8 copies wrote nothing, {ARRIVES}"),
        (LosesPart, "inconclusive", "8 of 8 copies arrived in part: the path between the devices may be broken"),
        (LosesKernelsToo, "inconclusive", PATH),
        (GrantsNothing, "inconclusive", "8 grants did not take"),
        (GrantsFirst, "inconclusive", "7 grants did not take"),
    ],
)
def test_peer_write_lost(between: type[Between], verdict: str, why: str, history: str) -> None:
    assert peer_write_lost(between(process("2")), history) == (verdict, why)


@pytest.mark.parametrize("history", ORDERS)
@pytest.mark.parametrize(
    ("between", "why"),
    [
        (GrantsNew, "the control, a copy into a pool without a grant, does not arrive"),
        (GrantsNothing, "8 grants did not take"),
        (Clears, PATH),
    ],
)
def test_peer_write_lost_with_something_between(between: type[Between], why: str, history: str) -> None:
    """Also when the kernel faults, since the access is gone when it is launched."""
    driver = between(process("2,fault=lost-after-setaccess"))
    assert peer_write_lost(driver, history) == ("inconclusive", why)


class WatchesContexts(Between):
    """Who reads the memory, and who works on it."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.current = 0
        self.streams: dict[int, int] = {}
        self.done: list[tuple[str, int]] = []

    def ctx_set_current(self, context: int) -> None:
        self.driver.ctx_set_current(context)
        self.current = context

    def stream_create(self, flags: int) -> int:
        stream: int = self.driver.stream_create(flags)
        self.streams[stream] = self.current
        return stream

    def memset_d8_async(self, pointer: int, value: int, size: int, stream: int) -> None:
        self.done.append((f"memset {value:#x}", self.streams[stream]))
        self.driver.memset_d8_async(pointer, value, size, stream)

    def memcpy_peer_async(self, to: int, to_context: int, source: int, source_context: int, *rest: int) -> None:
        self.done.append((f"copy from {source_context:#x} to {to_context:#x}", self.streams[rest[-1]]))
        self.driver.memcpy_peer_async(to, to_context, source, source_context, *rest)

    def stream_synchronize(self, stream: int) -> None:
        self.done.append(("synchronize", self.streams[stream]))
        self.driver.stream_synchronize(stream)

    def memcpy_dtoh(self, pointer: int, size: int) -> bytes:
        self.done.append(("read", self.current))
        data: bytes = self.driver.memcpy_dtoh(pointer, size)
        return data


def test_who_does_what_to_the_memory() -> None:
    """The owner poisons and reads, the accessor copies, and each waits before the other goes on."""
    driver = WatchesContexts(process("2"))
    peer_write_lost(driver, "granted-first")
    owner, accessor = driver.driver.device_primary_ctx_retain(0), driver.driver.device_primary_ctx_retain(1)
    payload = [("memset 0x5a", accessor), ("synchronize", accessor)]
    copied = [
        ("memset 0xa5", owner),
        ("synchronize", owner),
        (f"copy from {accessor:#x} to {owner:#x}", accessor),
        ("synchronize", accessor),
        ("read", owner),
    ]
    assert driver.done == [*payload, *copied, *8 * [*copied, ("synchronize", owner)]]


# --- rules ---


def counts(bug: Bug) -> Iterator[dict[str, int]]:
    """Counters around the limits of all rules."""
    limits = {
        (rule.counter, limit) for rule in bug.rules for limit in (rule.at_least, rule.below) if rule.counter and limit
    }
    names = [counter.name for counter in bug.counters if any(name == counter.name for name, _ in limits)]
    zero = {counter.name: 0 for counter in bug.counters}
    values = [sorted({0, *(limit for name, limit in limits if name == each)}) for each in names]
    for combination in product(*values):
        yield zero | dict(zip(names, combination, strict=True))


def first(bug: Bug, counters: dict[str, int]) -> Rule:
    """The rule that gave the verdict."""
    found = judge(bug, counters)
    return next(rule for rule in bug.rules if (rule.verdict, rule.why.format_map(counters)) == found)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_every_rule_can_apply(bug: Bug) -> None:
    assert {rule.why for rule in bug.rules} == {first(bug, each).why for each in counts(bug)}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_every_count_has_a_verdict_of_its_kind(bug: Bug) -> None:
    kinds = {"bug": {"affected", "not-affected", "inconclusive"}, "trap": {"present", "absent", "inconclusive"}}
    found = {judge(bug, each)[0] for each in counts(bug)}
    assert found == {rule.verdict for rule in bug.rules}
    assert found <= kinds[bug.kind]
    assert bug.kind == "trap" or found == kinds["bug"]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_description_names_what_it_has(bug: Bug) -> None:
    names = {counter.name for counter in bug.counters}
    assert {rule.counter for rule in bug.rules if rule.counter} <= names
    assert {*bug.decides, *bug.faulting} <= set(bug.arms)
    assert set(bug.enforced or ()) <= names
    assert bug.rules[-1].counter is None


def test_not_affected_needs_enough() -> None:
    """8 handles over 2 values, and a control that came back."""
    bug = every_bug()["recycled-handle"]
    good = dict.fromkeys((counter.name for counter in bug.counters), 0)
    good |= {"recycled_clean": 1, "recycled_tainted": 8, "tainted_values": 2}
    assert judge(bug, good) == ("not-affected", "none of 8 recycled handles had access")
    for name in ("recycled_clean", "recycled_tainted", "tainted_values"):
        assert judge(bug, good | {name: good[name] - 1})[0] == "inconclusive"
    for name in ("fresh_with_access", "clean_with_access", "not_granted", "cleared_by_others"):
        assert judge(bug, good | {name: 1})[0] == "inconclusive"
    assert judge(bug, good | {"inherited": 1})[0] == "affected"
