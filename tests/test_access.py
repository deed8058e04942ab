"""Planning changes of access: pure functions, so small machines are tried in every state."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest

from mempool_cli.access import Plan, check_capable, plan_grant, plan_revoke, preview, select
from mempool_cli.driver.port import AccessEntry, AccessFlags, Location, LocationType
from mempool_cli.errors import DriverWords, MempoolError, Problem
from mempool_cli.model import Access, Cell, Device, Pool, Row

STATES: tuple[Access | None, ...] = ("rw", "r", "none", "unknown", None)
FLAGS: dict[Access | None, int | None] = {"rw": 3, "r": 1, "none": 0, "unknown": 7, None: None}
WORDS = DriverWords(call="cuMemPoolGetAccess", code=999, name="CUDA_ERROR_UNKNOWN")
ERROR = Problem(code="driver-refused", message="the driver did not answer", driver=WORDS)


def cell(device: int, access: Access | None, *, owner: bool = False, capable: bool | None = True) -> Cell:
    return Cell(device=device, access=access, flags=FLAGS[access], owner=owner, capable=None if owner else capable)


def row(cells: Sequence[Cell], owner: int | None = 0) -> Row:
    location = "host" if owner is None else str(owner)
    return Row(
        pool=Pool(name="p", roles=("created",), location=location, owner=owner),
        cells=tuple(cells),
        host=Cell(device=None, access="none", flags=0),
    )


def devices(count: int, *, without_pools: Sequence[int] = ()) -> list[Device]:
    return [
        Device(
            ordinal=number,
            uuid=f"GPU-{number:08x}-0000-4000-8000-000000000000",
            pci_bus_id=f"0000:{number + 1:02x}:00.0",
            name="card",
            pools_supported=number not in without_pools,
        )
        for number in range(count)
    ]


def subsets(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(len(numbers) + 1):
        yield from itertools.combinations(numbers, size)


def every_row() -> Iterator[Row]:
    """Four devices in every state, on a pool of each device and of the host."""
    for owner in (None, 0, 2):
        for states in itertools.product(STATES, repeat=4 if owner is None else 3):
            access = iter(states)
            yield row([cell(d, "rw", owner=True) if d == owner else cell(d, next(access)) for d in range(4)], owner)


def after(before: Row, plan: Plan) -> dict[int | None, Access | None]:
    """Who has access when the driver has done it."""
    return {
        here.device: "rw" if here.device in plan.add else "none" if here.device in plan.remove else here.access
        for here in before.cells
    }


# --- what is true of every plan ---


def test_a_grant_gives_what_is_asked_and_touches_nothing_else() -> None:
    for before in every_row():
        owner = before.pool.owner
        for wanted in subsets(range(4)):
            plan = plan_grant(before, wanted)
            was, now = {here.device: here.access for here in before.cells}, after(before, plan)
            assert all(now[device] == "rw" for device in wanted)
            assert all(now[device] == was[device] for device in range(4) if device not in wanted)
            assert plan.remove == ()
            # Nothing that is as wanted is in the call, and everything asked for is somewhere.
            assert all(was[device] != "rw" for device in plan.add)
            assert sorted((*plan.add, *plan.unchanged)) == [device for device in wanted if device != owner]
            assert plan.owner_skipped is (owner in wanted)
            assert not plan_grant(_done(before, plan), wanted).entries


def test_only_leaves_exactly_the_devices_asked_for() -> None:
    for before in every_row():
        owner = before.pool.owner
        for wanted in subsets(range(4)):
            plan = plan_grant(before, wanted, only=True)
            now = after(before, plan)
            holders = {device for device, access in now.items() if access not in (None, "none")}
            assert holders == {*wanted, *([owner] if owner is not None else [])}
            assert owner not in (*plan.add, *plan.remove, *plan.unchanged)
            assert not plan_grant(_done(before, plan), wanted, only=True).entries


def test_a_revoke_takes_what_is_asked_and_never_the_owner() -> None:
    for before in every_row():
        owner = before.pool.owner
        for unwanted in subsets(range(4)):
            plan = plan_revoke(before, unwanted)
            was, now = {here.device: here.access for here in before.cells}, after(before, plan)
            assert all(now[device] in (None, "none") for device in unwanted if device != owner)
            assert all(now[device] == was[device] for device in range(4) if device not in unwanted or device == owner)
            assert plan.add == ()
            assert owner not in (*plan.remove, *plan.unchanged)
            assert all(was[device] not in (None, "none") for device in plan.remove)
            assert not plan_revoke(_done(before, plan), unwanted).entries


def _done(before: Row, plan: Plan) -> Row:
    now = after(before, plan)
    cells = [cell(number, now[number], owner=number == before.pool.owner) for number in range(4)]
    return row(cells, before.pool.owner)


def test_plans_do_not_depend_on_order_or_repetition() -> None:
    before = row([cell(0, "rw", owner=True), cell(1, "rw"), cell(2, "none"), cell(3, "r")])
    for words in itertools.permutations((3, 1, 2, 0, 3, 1), 6):
        assert plan_grant(before, words) == Plan(add=(2, 3), remove=(), unchanged=(1,), owner_skipped=True)
        assert plan_revoke(before, words) == Plan(add=(), remove=(1, 3), unchanged=(2,), owner_skipped=True)


def test_the_entries_of_the_one_call() -> None:
    def entry(device: int, flags: AccessFlags) -> AccessEntry:
        return AccessEntry(Location(LocationType.DEVICE, device), flags)

    plan = Plan(add=(1, 4), remove=(2,), unchanged=(3,), owner_skipped=True)
    assert plan.entries == [
        entry(1, AccessFlags.READWRITE),
        entry(4, AccessFlags.READWRITE),
        entry(2, AccessFlags.NONE),
    ]
    assert Plan(add=(), remove=(), unchanged=(1, 2), owner_skipped=True).entries == []


# --- cells that could not be read ---


def test_a_cell_that_cannot_be_read_is_asked_for_again_by_both() -> None:
    unread = Cell(device=1, capable=True, error=ERROR)
    before = row([cell(0, "rw", owner=True), unread, cell(2, "none")])
    assert plan_grant(before, [1]).add == (1,)
    assert plan_revoke(before, [1, 2]) == Plan(add=(), remove=(1,), unchanged=(2,), owner_skipped=False)


def test_only_does_not_guess_at_one() -> None:
    unread = Cell(device=1, capable=True, error=ERROR)
    before = row([cell(0, "rw", owner=True), unread, cell(2, "none")])
    with pytest.raises(MempoolError) as caught:
        plan_grant(before, [2], only=True)
    assert caught.value.problem == Problem(
        code="unreadable-cells",
        message="pool p: the access of device 1 cannot be read, so --only cannot set it",
        driver=WORDS,
    )
    assert plan_grant(before, [1], only=True).add == (1,)
    # The owner's own cell is never set.
    mute = row([Cell(device=0, owner=True, error=ERROR), cell(1, "rw")])
    assert plan_grant(mute, [], only=True).remove == (1,)


# --- words ---


@pytest.mark.parametrize(
    ("words", "owner", "chosen"),
    [
        ([], 0, []),
        (["1"], 0, [1]),
        (["3", "1", "3"], 0, [3, 1, 3]),
        (["0"], 0, [0]),
        (["all"], 0, [1, 2, 3]),
        (["all"], 2, [0, 1, 3]),
        (["all"], None, [0, 1, 2, 3]),
        (["peers"], 0, [1, 3]),
        (["peers"], 1, [3]),
        (["peers"], None, [1, 3]),
        (["all", "peers", "0"], 0, [1, 2, 3, 1, 3, 0]),
        (["GPU-00000002"], 0, [2]),
        (["0000:04:00.0", "00000000:02:00.0"], 0, [3, 1]),
    ],
)
def test_words_and_the_devices_they_name(words: list[str], owner: int | None, chosen: list[int]) -> None:
    cells = [cell(d, "none", owner=d == owner, capable=d in (1, 3)) for d in range(4)]
    assert select(words, devices(4), owner, cells) == chosen


def test_peers_are_none_where_it_was_not_asked() -> None:
    cells = [cell(0, "rw", owner=True), Cell(device=1), cell(2, "none"), cell(3, "none")]
    assert select(["peers"], devices(4, without_pools=[1]), 0, cells) == [2, 3]
    assert select(["all"], devices(4, without_pools=[1]), 0, cells) == [1, 2, 3]


def test_peers_are_not_known_where_the_driver_does_not_say() -> None:
    cells = [cell(0, "rw", owner=True), cell(1, "none"), Cell(device=2, access="none", error=ERROR), cell(3, "none")]
    with pytest.raises(MempoolError, match="does not say whether device 2 can reach the pool, so `peers` is not known"):
        select(["peers"], devices(4), 0, cells)
    assert select(["all"], devices(4), 0, cells) == [1, 2, 3]


@pytest.mark.parametrize("word", ["4", "ALL", "peer", "", "GPU-", "-1", "1-2"])
def test_words_that_name_none(word: str) -> None:
    with pytest.raises(MempoolError) as caught:
        select(["1", word], devices(4), 0, [cell(d, "none") for d in range(4)])
    assert caught.value.problem.code == "unknown-device"


# --- capability ---


def refusal(cells: Sequence[Cell], wanted: Sequence[int], *, force: bool = False, without: Sequence[int] = ()) -> str:
    """The code and the first words with which these devices are refused; empty when they are not."""
    try:
        check_capable(row(cells).pool, cells, wanted, devices(4, without_pools=without), force=force)
    except MempoolError as error:
        return f"{error.problem.code}: {error.problem.message.partition(',')[0]}"
    return ""


def test_all_that_cannot_are_named() -> None:
    cells = [cell(0, "rw", owner=True), cell(1, "none"), cell(2, "none", capable=False), cell(3, "rw", capable=False)]
    assert refusal(cells, []) == ""
    assert refusal(cells, [0, 1]) == ""
    assert refusal(cells, [3, 1, 2]) == "not-peer-capable: devices 2-3 cannot reach device 0"
    assert refusal(cells, [3]) == "not-peer-capable: device 3 cannot reach device 0"
    assert refusal(cells, [3, 1, 2], force=True) == ""


def test_a_card_without_pools_comes_first_and_force_does_not_help() -> None:
    cells = [cell(0, "rw", owner=True), Cell(device=1), cell(2, "none", capable=False), cell(3, "none")]
    for force in (False, True):
        assert (
            refusal(cells, [1, 2, 3], force=force, without=[1]) == "no-pool-support: device 1 cannot use memory pools"
        )
    assert refusal(cells, [3], without=[1]) == ""


def test_a_capability_that_is_not_known_is_a_refusal() -> None:
    cells = [cell(0, "rw", owner=True), Cell(device=1, error=ERROR)]
    assert "the driver does not say whether device 1 can reach device 0" in refusal(cells, [1])
    assert refusal(cells, [1], force=True) == ""


def test_a_preview_is_the_plan_and_no_call() -> None:
    before = row([cell(0, "rw", owner=True), cell(1, "rw"), cell(2, "none", capable=False), cell(3, "rw")])
    shown = preview(before, plan_grant(before, [0, 1, 2], only=True))
    assert (shown.granted, shown.revoked, shown.unchanged) == ((2,), (3,), (1,))
    assert (shown.owner_skipped, shown.set_access_calls, shown.dry_run, shown.cells) == (True, 0, True, before.cells)
    assert [notice.code for notice in shown.warnings] == ["granted-without-p2p"]
