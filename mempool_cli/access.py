"""Changing access: plan what differs, send it in one cuMemPoolSetAccess, report what the driver then says.

For your own program, in its process: `set_peers(0, [1, 2])` gives exactly devices 1 and 2 access to the
default pool of device 0; with `pool=handle` to another pool of device 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, SupportsInt

from mempool_cli.devices import EVERY, list_devices, no_pool_support, resolve_device
from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import AccessEntry, AccessFlags, Driver, device_location
from mempool_cli.errors import DriverError, MempoolError
from mempool_cli.model import AccessChange, Cell, Device, Notice, Pool, Row
from mempool_cli.probe import Target, default_target, process_driver, read_row
from mempool_cli.wording import device_list


class Plan(NamedTuple):
    """What one call has to change. All are ascending ordinals; the owner is in none of them."""

    add: tuple[int, ...]
    remove: tuple[int, ...]
    unchanged: tuple[int, ...]
    owner_skipped: bool

    @property
    def entries(self) -> list[AccessEntry]:
        """The entries of the one cuMemPoolSetAccess; empty when there is nothing to do."""
        return [AccessEntry(device_location(device), AccessFlags.READWRITE) for device in self.add] + [
            AccessEntry(device_location(device), AccessFlags.NONE) for device in self.remove
        ]


def plan_grant(row: Row, wanted: Iterable[int], *, only: bool = False) -> Plan:
    """Read-write access for `wanted`; with `only`, for nobody else. Pure.

    MempoolError `unreadable-cells` when `only` has to change a device whose access could not be read.
    """
    devices = set(wanted)
    owner = row.pool.owner
    peers = [cell for cell in row.cells if cell.device != owner]
    asked = [cell for cell in peers if cell.device in devices]
    others = [cell for cell in peers if cell.device not in devices] if only else []
    unread = [cell for cell in others if cell.unread]
    if unread:
        raise _unreadable(row.pool, unread, "the access of {} cannot be read, so --only cannot set it")
    return Plan(
        add=_numbers(cell for cell in asked if cell.access != "rw"),
        remove=_numbers(cell for cell in others if cell.may_access),
        unchanged=_numbers(cell for cell in asked if cell.access == "rw"),
        owner_skipped=owner in devices,
    )


def plan_revoke(row: Row, unwanted: Iterable[int]) -> Plan:
    """No access for `unwanted`. Pure. The owner is left out: the driver would refuse the whole call."""
    devices = set(unwanted)
    asked = [cell for cell in row.cells if cell.device in devices and cell.device != row.pool.owner]
    return Plan(
        add=(),
        remove=_numbers(cell for cell in asked if cell.may_access),
        unchanged=_numbers(cell for cell in asked if not cell.may_access),
        owner_skipped=row.pool.owner in devices,
    )


def _unreadable(pool: Pool, cells: Sequence[Cell], what: str, result: AccessChange | None = None) -> MempoolError:
    """`unreadable-cells` about these cells; `what` has a place for their devices."""
    return MempoolError(
        "unreadable-cells",
        f"{_name(pool)}: {what.format(device_list(_numbers(cells)))}",
        driver=cells[0].error.driver if cells[0].error else None,
        result=result,
    )


def _numbers(cells: Iterable[Cell]) -> tuple[int, ...]:
    return tuple(sorted(cell.device for cell in cells if cell.device is not None))


def select(words: Sequence[str], devices: Sequence[Device], owner: int | None, cells: Sequence[Cell]) -> list[int]:
    """The ordinals that DEV words name: `all` is every other device, `peers` those of them that are capable.

    MempoolError `unknown-device`, or `unreadable-cells` when the driver does not say who is capable. Duplicates
    stay.
    """
    chosen: list[int] = []
    for word in words:
        if word not in EVERY:
            chosen.append(resolve_device(word, devices))
            continue
        others = [cell for cell in cells if cell.device is not None and cell.device != owner]
        unknown = [cell for cell in others if cell.capable is None and cell.error]
        if word == "peers" and unknown:
            raise MempoolError(
                "unreadable-cells",
                f"the driver does not say whether {device_list(_numbers(unknown))} can reach the pool, so `peers` is"
                " not known; nothing was changed",
                driver=unknown[0].error.driver if unknown[0].error else None,
            )
        chosen += _numbers(cell for cell in others if word == "all" or cell.capable)
    return chosen


def check_capable(
    pool: Pool, cells: Sequence[Cell], wanted: Iterable[int], devices: Sequence[Device], *, force: bool = False
) -> None:
    """Checks that all `wanted` devices could use the pool. `force` skips the peer question.

    MempoolError names every one that cannot: `no-pool-support`, `not-peer-capable`; or for which the driver does
    not say: `unreadable-cells`.

    Without this the driver accepts the grant on a pool that was never allocated from, and the next
    allocation fails, far from the cause (CUDA Programming Guide).
    """
    asked = set(wanted) - {pool.owner}
    unsupported = sorted(device for device in asked if not devices[device].pools_supported)
    if unsupported:
        raise MempoolError(
            "no-pool-support",
            f"{device_list(unsupported)} cannot use memory pools, so no access can be granted to {_name(pool)};"
            " nothing was changed",
            hint="`--to peers` takes those that can",
        )
    if force:
        return
    unknown = [cell for cell in cells if cell.device in asked and cell.capable is None and cell.error]
    if unknown:
        raise _unreadable(pool, unknown, f"the driver does not say whether {{}} can reach {_place(pool)}")
    incapable = [cell for cell in cells if cell.device in asked and cell.capable is False]
    if incapable:
        raise MempoolError(
            "not-peer-capable",
            f"{device_list(_numbers(incapable))} cannot reach {_place(pool)}, so no access can be granted to"
            f" {_name(pool)}; nothing was changed",
            hint="`--to peers` takes those that can, `mempool devices` shows them; `grant --force` tries anyway,"
            " and then the next allocation may fail",
        )


def _name(pool: Pool) -> str:
    return f"pool {pool.name}" if pool.name else "a new pool"


def _place(pool: Pool) -> str:
    return f"device {pool.owner}" if pool.owner is not None else f"memory on {pool.location}"


def change(driver: Driver, target: Target, before: Row, plan: Plan, devices: Sequence[Device]) -> AccessChange:
    """Sends the plan and reads back. Driver calls: at most 1 cuMemPoolSetAccess, then a row as in `read_row`.

    MempoolError with the read-back as its result: `driver-refused` when the driver refused the call,
    `not-applied` when it accepted the call and reports something else, for these devices or for any other,
    `unreadable-cells` when it does not report.
    """
    if not plan.entries:
        return _report(before, before, plan, sent=False)
    refusal: DriverError | None = None
    try:
        driver.mem_pool_set_access(target.handle, plan.entries)
    except DriverError as error:
        refusal = error
    after = read_row(driver, target, devices)
    if refusal:
        raise _refusal(refusal, before, after, plan) from refusal
    report = _report(before, after, plan, sent=True)
    wrong = _not_as_asked(before, after, plan)
    if wrong:
        raise MempoolError(
            "not-applied",
            f"{_name(target.pool)}: the driver accepted the change, but not all reads back as asked:"
            f" {device_list(wrong)}",
            hint="this is a driver fault; report it with the output of --trace",
            result=report,
        )
    if report.unknown:
        unread = [cell for cell in after.cells if cell.device in report.unknown]
        raise _unreadable(target.pool, unread, "the driver accepted the change, and does not answer for {}", report)
    return report


def _unread(after: Row, plan: Plan) -> tuple[int, ...]:
    """The devices that the plan is about and whose access cannot be read."""
    asked = {*plan.add, *plan.remove}
    return _numbers(cell for cell in after.cells if cell.device in asked and cell.unread)


def _not_as_asked(before: Row, after: Row, plan: Plan) -> tuple[int, ...]:
    """The devices whose access reads back, and as something else than asked, or than before where nothing was asked."""
    asked: dict[int | None, str] = {**dict.fromkeys(plan.add, "rw"), **dict.fromkeys(plan.remove, "none")}
    return _numbers(
        cell
        for cell, was in zip(after.cells, before.cells, strict=True)
        if cell.access is not None and cell.access != asked.get(cell.device, was.access or cell.access)
    )


def preview(before: Row, plan: Plan) -> AccessChange:
    """What `change` would do. No driver call."""
    return AccessChange(
        pool=before.pool,
        granted=plan.add,
        revoked=plan.remove,
        unchanged=plan.unchanged,
        owner_skipped=plan.owner_skipped,
        dry_run=True,
        cells=before.cells,
        warnings=_without_p2p(before, (*plan.add, *plan.unchanged)),
    )


def _report(before: Row, after: Row, plan: Plan, *, sent: bool) -> AccessChange:
    """What is different now. Where access could not be read before, only a call that was `sent` and accepted tells."""

    def turned(devices: Sequence[int], access: str) -> tuple[int, ...]:
        return _numbers(
            cell
            for cell, was in zip(after.cells, before.cells, strict=True)
            if cell.device in devices and cell.access == access != was.access and (sent or was.access is not None)
        )

    granted = turned(plan.add, "rw")
    return AccessChange(
        pool=after.pool,
        granted=granted,
        revoked=turned(plan.remove, "none"),
        unchanged=plan.unchanged,
        owner_skipped=plan.owner_skipped,
        set_access_calls=int(bool(plan.entries)),
        unknown=_unread(after, plan),
        cells=after.cells,
        warnings=_without_p2p(after, (*granted, *plan.unchanged)),
    )


def _without_p2p(row: Row, granted: Sequence[int]) -> tuple[Notice, ...]:
    """The warning about devices that have, or would have, access and cannot use it."""
    useless = _numbers(cell for cell in row.cells if cell.device in granted and cell.capable is False)
    if not useless:
        return ()
    message = (
        f"{device_list(useless)} cannot reach {_place(row.pool)}: with this access the next allocation from pool"
        f" {row.pool.name} will fail"
    )
    return (Notice(code="granted-without-p2p", message=message),)


def _refusal(error: DriverError, before: Row, after: Row, plan: Plan) -> MempoolError:
    report = _report(before, after, plan, sent=False)
    if report.unknown:
        unread = device_list(report.unknown)
        return MempoolError(
            "driver-refused",
            f"{_name(before.pool)}: the driver refused the change, and does not answer for {unread}",
            driver=error.words,
            result=report,
        )
    applied = len(report.granted) + len(report.revoked)
    incapable = [cell for cell in before.cells if cell.device in plan.add and cell.capable is False]
    because = ""
    if error.words.code == Code.CUDA_ERROR_INVALID_DEVICE and incapable:
        because = f": {device_list(_numbers(incapable))} cannot reach {_place(before.pool)}"
    return MempoolError(
        "driver-refused",
        f"{_name(before.pool)}: the driver refused the change, {applied} of {len(plan.entries)} applied{because}",
        hint=_HINTS.get(error.words.code),
        driver=error.words,
        result=report,
    )


_HINTS: dict[int, str] = {
    Code.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: "a thread of this process is capturing a stream; end the capture first."
    " The capture is now invalid",
    Code.CUDA_ERROR_NOT_SUPPORTED: "this driver does not support the change on this kind of pool",
}


def set_peers(owner: int, peers: Iterable[int], *, pool: SupportsInt | None = None) -> AccessChange:
    """Sets exactly which devices may access a pool of this process; the owner always may.

    `pool`: the handle of a live pool on device `owner`, such as `DeviceMemoryResource.handle`; its default
    pool when None. A handle that is dead or no pool makes the driver read foreign memory. Driver calls:
    1 cuMemPoolSetAccess when something differs. MempoolError as `check_capable`, `change` and `process_driver`.
    """
    wanted = {int(peer) for peer in peers}
    with process_driver() as driver:
        devices = list_devices(driver)
        for device in (owner, *sorted(wanted)):
            resolve_device(str(device), devices)
        if not devices[owner].pools_supported:
            raise no_pool_support(devices[owner])
        target = default_target(driver, devices[owner])
        if pool is not None:
            named = Pool(name=f"unnamed:{owner}", roles=(), location=str(owner), owner=owner)
            target = Target(named, int(pool), target.location)
        before = read_row(driver, target, devices)
        plan = plan_grant(before, wanted, only=True)
        check_capable(target.pool, before.cells, plan.add, devices)
        return change(driver, target, before, plan, devices)
