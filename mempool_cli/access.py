"""Changing access: plan what differs, send it in one cuMemPoolSetAccess, report what the driver then says.

For your own program, in its process: `set_peers(0, [1, 2])` gives exactly devices 1 and 2 access to the
default pool of device 0; with `pool=handle` to another pool of device 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, SupportsInt

from mempool_cli.devices import EVERY, list_devices, resolve_device
from mempool_cli.driver.port import AccessEntry, AccessFlags, Driver, device_location
from mempool_cli.errors import DriverError, MempoolError
from mempool_cli.model import AccessChange, Cell, Device, Notice, Pool, Row
from mempool_cli.probe import Target, default_target, process_driver, read_row, relaxed_capture
from mempool_cli.wording import device_list

_INVALID_DEVICE = 101


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
    unreadable = [cell for cell in others if cell.error]
    if unreadable:
        raise MempoolError(
            "unreadable-cells",
            f"pool {row.pool.name}: the access of {device_list(_numbers(unreadable))} cannot be read,"
            " so --only cannot set it",
            driver=unreadable[0].error.driver if unreadable[0].error else None,
        )
    return Plan(
        add=_numbers(cell for cell in asked if cell.access != "rw"),
        remove=_numbers(cell for cell in others if cell.access not in (None, "none")),
        unchanged=_numbers(cell for cell in asked if cell.access == "rw"),
        owner_skipped=owner in devices,
    )


def plan_revoke(row: Row, unwanted: Iterable[int]) -> Plan:
    """No access for `unwanted`. Pure. The owner is left out: the driver would refuse the whole call."""
    devices = set(unwanted)
    asked = [cell for cell in row.cells if cell.device in devices and cell.device != row.pool.owner]
    return Plan(
        add=(),
        remove=_numbers(cell for cell in asked if cell.access not in (None, "none") or cell.error),
        unchanged=_numbers(cell for cell in asked if cell.access in (None, "none") and not cell.error),
        owner_skipped=row.pool.owner in devices,
    )


def _numbers(cells: Iterable[Cell]) -> tuple[int, ...]:
    return tuple(sorted(cell.device for cell in cells if cell.device is not None))


def select(words: Sequence[str], devices: Sequence[Device], owner: int | None, cells: Sequence[Cell]) -> list[int]:
    """The ordinals that DEV words name: `all` is every other device, `peers` those of them that are capable.

    MempoolError `unknown-device`. Duplicates stay.
    """
    chosen: list[int] = []
    for word in words:
        if word not in EVERY:
            chosen.append(resolve_device(word, devices))
            continue
        others = [cell for cell in cells if cell.device is not None and cell.device != owner]
        chosen += _numbers(cell for cell in others if word == "all" or cell.capable)
    return chosen


def check_capable(
    pool: Pool, cells: Sequence[Cell], wanted: Iterable[int], devices: Sequence[Device], *, force: bool = False
) -> None:
    """Checks that all `wanted` devices could use the pool. `force` skips the peer question.

    MempoolError names every one that cannot: `no-pool-support`, `not-peer-capable`.

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
        )
    incapable = [cell for cell in cells if cell.device in asked and cell.capable is False]
    if incapable and not force:
        raise MempoolError(
            "not-peer-capable",
            f"{device_list(_numbers(incapable))} cannot reach {_place(pool)}, so no access can be granted to"
            f" {_name(pool)}; nothing was changed",
            hint="`mempool devices` shows who reaches whom; `grant --force` tries anyway,"
            " and then the next allocation may fail",
        )


def _name(pool: Pool) -> str:
    return f"pool {pool.name}" if pool.name else "a new pool"


def _place(pool: Pool) -> str:
    return f"device {pool.owner}" if pool.owner is not None else f"memory on {pool.location}"


def change(driver: Driver, target: Target, before: Row, plan: Plan, devices: Sequence[Device]) -> AccessChange:
    """Sends the plan and reads back. Driver calls: at most 1 cuMemPoolSetAccess, then a row as in `read_row`.

    MempoolError with the read-back as its result: `driver-refused` when the driver refused the call,
    `not-applied` when it accepted the call and still reports something else.
    """
    if not plan.entries:
        return _report(before, before, plan, calls=0)
    try:
        driver.mem_pool_set_access(target.handle, plan.entries)
    except DriverError as error:
        after = read_row(driver, target, devices)
        report = _report(before, after, plan, calls=1)
        raise _refusal(error, before, plan, report) from error
    after = read_row(driver, target, devices)
    report = _report(before, after, plan, calls=1)
    wrong = sorted({*plan.add, *plan.remove} - {*report.granted, *report.revoked})
    if wrong:
        raise MempoolError(
            "not-applied",
            f"pool {target.pool.name}: the driver accepted the change, but not all reads back as asked:"
            f" {device_list(wrong)}",
            hint="this is a driver fault; report it with the output of --trace",
            result=report,
        )
    return report


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
        warnings=_without_p2p(before, plan.add),
    )


def _report(before: Row, after: Row, plan: Plan, calls: int) -> AccessChange:
    was = {cell.device: cell.access for cell in before.cells}
    now = {cell.device: cell.access for cell in after.cells}
    granted = tuple(device for device in plan.add if now[device] == "rw")
    return AccessChange(
        pool=after.pool,
        granted=granted,
        revoked=tuple(d for d in plan.remove if now[d] == "none" and was[d] != "none"),
        unchanged=plan.unchanged,
        owner_skipped=plan.owner_skipped,
        set_access_calls=calls,
        cells=after.cells,
        warnings=_without_p2p(after, granted),
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


def _refusal(error: DriverError, before: Row, plan: Plan, report: AccessChange) -> MempoolError:
    total = len(plan.entries)
    applied = len(report.granted) + len(report.revoked)
    incapable = [cell for cell in before.cells if cell.device in plan.add and cell.capable is False]
    because = ""
    if error.words.code == _INVALID_DEVICE and incapable:
        because = f": {device_list(_numbers(incapable))} cannot reach {_place(before.pool)}"
    return MempoolError(
        "driver-refused",
        f"pool {before.pool.name}: the driver refused the change, {applied} of {total} applied{because}",
        hint=_HINTS.get(error.words.code),
        driver=error.words,
        result=report,
    )


_HINTS = {
    900: "a thread of this process is capturing a stream; end the capture first. The capture is now invalid",
    801: "this driver does not support the change on this kind of pool",
}


def set_peers(owner: int, peers: Iterable[int], *, pool: SupportsInt | None = None) -> AccessChange:
    """Sets exactly which devices may access a pool of this process; the owner always may.

    `pool`: the handle of a live pool on device `owner`, such as `DeviceMemoryResource.handle`; its default
    pool when None. A handle that is dead or no pool makes the driver read foreign memory. Driver calls:
    1 cuMemPoolSetAccess when something differs. Raises MempoolError as `check_capable` and `change` do.
    """
    driver = process_driver()
    wanted = {int(peer) for peer in peers}
    with relaxed_capture(driver):
        devices = list_devices(driver)
        for device in (owner, *sorted(wanted)):
            resolve_device(str(device), devices)
        target = default_target(driver, devices[owner])
        if pool is not None:
            target = Target(
                Pool(name=f"pool of device {owner}", roles=(), location=str(owner), owner=owner),
                int(pool),
                target.location,
            )
        before = read_row(driver, target, devices)
        plan = plan_grant(before, wanted, only=True)
        check_capable(target.pool, before.cells, plan.add, devices)
        return change(driver, target, before, plan, devices)
