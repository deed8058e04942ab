"""What changed from one snapshot to another: devices go by their UUID, pairs by those of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mempool_cli.model import Change, ChangeKind, Device, Difference, ValueChange
from mempool_cli.snapshot.document import DeviceState, Snapshot

_PLACE = ("ordinal", "pci_bus_id", "host_numa_id", "nvml_index")
_NATURE = tuple(name for name in DeviceState.__struct_fields__ if name not in ("uuid", *_PLACE))
_FACTS = (
    "host_name",
    "kernel",
    "iommu",
    "hypervisor",
    "container",
    "wsl",
    "mps",
    "cuda_visible_devices",
    "cuda_device_order",
)


def compare(before: Snapshot, after: Snapshot, *, old: str, new: str | None) -> Difference:
    """The difference. Where CUDA failed, in either, that is the change, and nothing is said of devices."""
    changes = [*_driver(before, after), *_machine(before, after)]
    if before.failure or after.failure:
        changes = [*_cuda(before, after), *changes]
    else:
        changes += [*_devices(before, after), *_capability(before, after), *_access(before, after)]
    devices = {device.uuid: _device(device) for device in (*before.devices, *after.devices)}
    return Difference(old=old, new=new, devices=tuple(devices.values()), changes=tuple(changes))


def _device(state: DeviceState) -> Device:
    return Device(
        ordinal=state.ordinal,
        uuid=state.uuid,
        pci_bus_id=state.pci_bus_id,
        name=state.name,
        pools_supported=state.pools_supported,
    )


def _word(value: Any) -> str | None:
    if value is None:
        return None
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _unlike(before: Any, after: Any, names: Sequence[str]) -> tuple[ValueChange, ...]:
    """What differs of these attributes."""
    values = [(name, getattr(before, name), getattr(after, name)) for name in names]
    return tuple(ValueChange(name=name, old=_word(old), new=_word(new)) for name, old, new in values if old != new)


# --- driver and host ---


def _cuda(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    old, new = (f"{each.failure.code}: {each.failure.message}" if each.failure else "works" for each in (before, after))
    if old != new:
        yield Change(kind="cuda", values=(ValueChange(name="state", old=old, new=new),))


def _driver(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """All of the driver is one change. What a simulated machine is called is not what it is."""
    old, new = _versions(before), _versions(after)
    names = [name for name in (old | new) if old.get(name) != new.get(name)]
    if names:
        values = (ValueChange(name=name, old=old.get(name), new=new.get(name)) for name in names)
        yield Change(kind="driver", values=tuple(values))


def _versions(snapshot: Snapshot) -> dict[str, str]:
    driver, module = snapshot.driver, snapshot.machine.kernel_module
    library = driver.libcuda if driver else None
    found = {
        "kind": driver and driver.kind,
        "cuda_version": driver and driver.cuda_version,
        "bindings": driver and driver.bindings,
        "libcuda": library and library.path,
        "libcuda_version": library and library.version,
        "kernel_module": module and f"{module.version} ({module.flavour})",
    }
    return {name: value for name, value in found.items() if value}


def _machine(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """A change a fact."""
    for value in _unlike(before.machine, after.machine, _FACTS):
        yield Change(kind="machine", values=(value,))


# --- devices ---


def _devices(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """One a device, whatever of it is other."""
    old = {device.uuid: device for device in before.devices}
    new = {device.uuid: device for device in after.devices}
    for uuid in old:
        if uuid not in new:
            yield Change(kind="device-removed", device=uuid)
    for uuid in new:
        if uuid not in old:
            yield Change(kind="device-added", device=uuid)
        else:
            place, nature = (_unlike(old[uuid], new[uuid], names) for names in (_PLACE, _NATURE))
            if place or nature:
                yield Change(kind="device-moved" if place else "device-changed", device=uuid, values=place + nature)


# --- pairs ---


def _capability(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """One for both directions, where they changed alike."""
    old = {(pair.accessor, pair.owner): _word(pair.capable) or "unknown" for pair in before.capability}
    new = {(pair.accessor, pair.owner): _word(pair.capable) or "unknown" for pair in after.capability}
    unlike = {pair: (old[pair], new[pair]) for pair in new if pair in old and old[pair] != new[pair]}
    for (accessor, owner), value in unlike.items():
        back = unlike.get((owner, accessor)) == value
        if not back or accessor < owner:
            yield _of_pair("capability", accessor, owner, value, both_ways=back)


def _access(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Of default pools in a new process."""
    old = {(cell.accessor, cell.owner): cell.access or "unknown" for cell in before.access}
    new = {(cell.accessor, cell.owner): cell.access or "unknown" for cell in after.access}
    for (accessor, owner), access in new.items():
        was = old.get((accessor, owner))
        if was is not None and was != access:
            yield _of_pair("access", accessor, owner, (was, access))


def _of_pair(
    kind: ChangeKind, accessor: str | None, owner: str, values: tuple[str, str], *, both_ways: bool = False
) -> Change:
    old, new = values
    value = ValueChange(name=kind, old=old, new=new)
    return Change(kind=kind, device=accessor, owner=owner, both_ways=both_ways, values=(value,))
