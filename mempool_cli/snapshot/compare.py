"""What changed from one snapshot to another: devices go by their UUID, pairs by those of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mempool_cli.model import Change, Device, Difference, Notice, ValueChange
from mempool_cli.snapshot.document import Capability, DeviceState, PoolAccess, Snapshot

_PLACE = ("ordinal", "pci_bus_id", "host_numa_id", "nvml_index")
_NATURE = tuple(name for name in DeviceState.__struct_fields__ if name not in ("uuid", *_PLACE))
_PAIR = tuple(name for name in Capability.__struct_fields__ if name not in ("accessor", "owner"))
_NVML = ("nvml_index", "mig", "persistence", "nvml_read", "nvml_write", "nvml_atomics")
_SPELLED = {"capable": "capability"}
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
    return Difference(
        old=old,
        new=new,
        devices=tuple(devices.values()),
        devices_compared=not (before.failure or after.failure),
        warnings=_simulated(before, after, old),
        changes=tuple(changes),
    )


def _simulated(before: Snapshot, after: Snapshot, old: str) -> tuple[Notice, ...]:
    """Where the answer's driver, which is that of the new one, does not say it."""
    sims = [each.driver.sim if each.driver else None for each in (before, after)]
    if sims[0] is None or sims[0] == sims[1]:
        return ()
    return (Notice("simulated", f"{old} is of the simulated machine {sims[0]}: no hardware was asked for it"),)


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
    """What differs of these attributes; one that is not there has none."""
    values = [(name, getattr(before, name, None), getattr(after, name, None)) for name in names]
    return tuple(
        ValueChange(name=_SPELLED.get(name, name), old=_word(old), new=_word(new))
        for name, old, new in values
        if old != new
    )


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


def _comparable(before: Snapshot, after: Snapshot, names: Sequence[str]) -> Sequence[str]:
    """Without what NVML says, where it was asked on one side only: that is no change of the machine."""
    asked = all(any(device.nvml_index is not None for device in each.devices) for each in (before, after))
    return names if asked else [name for name in names if name not in _NVML]


def _devices(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """One a device, whatever of it is other."""
    old = {device.uuid: device for device in before.devices}
    new = {device.uuid: device for device in after.devices}
    place_names, nature_names = (_comparable(before, after, names) for names in (_PLACE, _NATURE))
    for uuid in old:
        if uuid not in new:
            yield Change(kind="device-removed", device=uuid)
    for uuid in new:
        if uuid not in old:
            yield Change(kind="device-added", device=uuid)
        else:
            place, nature = (_unlike(old[uuid], new[uuid], names) for names in (place_names, nature_names))
            if place or nature:
                yield Change(kind="device-moved" if place else "device-changed", device=uuid, values=place + nature)


# --- pairs ---

Said = Capability | PoolAccess


def _pairs(
    before: Snapshot, after: Snapshot, old: Sequence[Said], new: Sequence[Said]
) -> Iterator[tuple[str | None, str, Said | None, Said | None]]:
    """Accessor, owner, and what each side says of them: None where it lacks a pair of devices that are in both."""
    told, tells = ({(each.accessor, each.owner): each for each in side} for side in (old, new))
    stay = {device.uuid for device in before.devices} & {device.uuid for device in after.devices}
    for pair in dict.fromkeys([*tells, *told]):
        if (pair in told and pair in tells) or {*pair} <= {None, *stay}:
            yield *pair, told.get(pair), tells.get(pair)


def _capability(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """One for both directions, where they changed alike."""
    names = _comparable(before, after, _PAIR)
    unlike = {
        (accessor, owner): values
        for accessor, owner, old, new in _pairs(before, after, before.capability, after.capability)
        if accessor is not None and (values := _unlike(old, new, names))
    }
    for (accessor, owner), values in unlike.items():
        back = unlike.get((owner, accessor)) == values
        if not back or accessor < owner:
            yield Change(kind="capability", device=accessor, owner=owner, both_ways=back, values=values)


def _access(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Of default pools in a new process."""
    for accessor, owner, old, new in _pairs(before, after, before.access, after.access):
        values = _unlike(old, new, ("access",))
        if values:
            yield Change(kind="access", device=accessor, owner=owner, values=values)
