"""The visible devices: which, what pools they have, who may use them, and how CUDA and NVML number them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from mempool_cli.devices import NO_POOLS
from mempool_cli.doctor.findings import Facts, fail, ok, warn
from mempool_cli.doctor.sources import Sources
from mempool_cli.driver.port import ComputeMode, HandleType
from mempool_cli.machine import MPS_PROCESS
from mempool_cli.model import DeviceDetail, Finding
from mempool_cli.wording import device_list, ranges

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPUS = "/proc/driver/nvidia/gpus"
_MODES = {
    ComputeMode.PROHIBITED: "prohibited: no process may use it",
    ComputeMode.EXCLUSIVE_PROCESS: "exclusive: one process at a time",
}

Key = TypeVar("Key", bound=Hashable)


def findings(facts: Facts) -> Iterator[Finding]:
    """Without devices, why the driver does not tell of them; nothing where CUDA did not start, which told why."""
    devices = facts.look.devices
    refused = facts.refused
    if refused and refused.driver:
        yield fail("devices", refused.message, evidence=[str(refused.driver)], driver=refused.driver)
    if not devices:
        return
    yield visible(facts)
    yield pools(devices)
    yield handles(devices)
    yield numa(devices)
    yield from compute_modes(facts)
    yield from mig(facts)
    if facts.sources and any(name.startswith(MPS_PROCESS) for name in facts.sources.processes()):
        hint = "`mempool verify --allow-faults` is refused here; a fault of one client ends the others"
        yield warn("mps", "an MPS control daemon runs", hint=hint)
    if facts.nvml and facts.nvml.devices and not _instances(facts):
        yield order(facts)


def _grouped(devices: Iterable[DeviceDetail], key: Callable[[DeviceDetail], Key]) -> dict[Key, list[int]]:
    """Ordinals by what they have in common, in the order of the first of each."""
    groups: dict[Key, list[int]] = {}
    for device in devices:
        groups.setdefault(key(device), []).append(device.ordinal)
    return groups


def _told(groups: dict[str, list[int]]) -> str:
    return "; ".join(f"{what} on {ranges(ordinals)}" for what, ordinals in groups.items())


def visible(facts: Facts) -> Finding:
    """Which devices there are, and whether CUDA_VISIBLE_DEVICES asked for more."""
    devices = facts.look.devices
    names = _grouped(devices, lambda device: device.name)
    text = "; ".join(f"{ranges(ordinals)} {name}" for name, ordinals in names.items())
    integrated = [d.ordinal for d, yes in zip(devices, facts.look.integrated, strict=False) if yes]
    text += f"; integrated: {ranges(integrated)}" if integrated else ""
    evidence = [f"device {d.ordinal}: {d.pci_bus_id} {d.uuid}" for d in devices]
    listed = facts.sources.environment.get(_VISIBLE) if facts.sources else None
    if facts.sources is None or listed is None:
        return ok("devices", text, evidence=evidence)
    evidence.insert(0, f"{_VISIBLE}={listed!r}")
    words = [word for word in listed.split(",") if word]
    if len(words) > len(devices) and not _instances(facts):
        hint = "it takes ordinals and UUIDs of this machine, each once; what follows a wrong one is ignored"
        return warn("devices", f"{text}; {_VISIBLE} lists {len(words)}", evidence=evidence, hint=hint)
    return ok("devices", f"{text}{_of_all(facts.sources, len(devices))}", evidence=evidence)


def _of_all(sources: Sources, count: int) -> str:
    there = len(sources.names(_GPUS))
    return f"; {there} in this machine" if there > count else ""


def pools(devices: tuple[DeviceDetail, ...]) -> Finding:
    """Which kinds of pool each has."""

    def kinds(device: DeviceDetail) -> str:
        has = {
            "device": device.pools_supported,
            "host": device.host_pools_supported,
            "NUMA": device.host_numa_pools_supported,
        }
        return ", ".join(kind for kind, yes in has.items() if yes) or "none"

    text = _told(_grouped(devices, kinds))
    without = [device.ordinal for device in devices if not device.pools_supported]
    if len(without) == len(devices):
        return fail("pools", "no device has memory pools", hint=NO_POOLS, code="no-pool-support")
    return warn("pools", text, hint=NO_POOLS) if without else ok("pools", text)


def handles(devices: tuple[DeviceDetail, ...]) -> Finding:
    """As what a pool can be exported to another process."""

    def types(device: DeviceDetail) -> str:
        known = [kind for kind in HandleType if kind and device.pool_handle_types & kind]
        rest = device.pool_handle_types & ~sum(known)
        return ", ".join([kind.name for kind in known] + ([hex(rest)] if rest else [])) or "none"

    return ok("handles", _told(_grouped(devices, types)))


def numa(devices: tuple[DeviceDetail, ...]) -> Finding:
    """The host's node that is nearest to each."""
    nodes = _grouped(devices, lambda device: device.host_numa_id)
    told = [f"{'no node' if node < 0 else f'node {node}'} nearest to {ranges(group)}" for node, group in nodes.items()]
    return ok("numa", "; ".join(told))


def compute_modes(facts: Facts) -> Iterator[Finding]:
    """Those that keep processes away."""
    modes = dict(zip((d.ordinal for d in facts.look.devices), facts.look.compute_modes, strict=False))
    hint = "`nvidia-smi -i BUS_ID -c DEFAULT` as root"
    closed = {mode: [ordinal for ordinal, found in modes.items() if found == mode] for mode in _MODES}
    for mode, ordinals in closed.items():
        if ordinals:
            yield warn("compute mode", f"{device_list(ordinals)}: {_MODES[mode]}", hint=hint)
    rest = [ordinal for ordinal, found in modes.items() if found == ComputeMode.DEFAULT]
    if len(rest) == len(modes):
        yield ok("compute mode", f"default on {ranges(rest)}")


def _instances(facts: Facts) -> list[DeviceDetail]:
    return [device for device in facts.look.devices if device.uuid.startswith("MIG-")]


def mig(facts: Facts) -> Iterator[Finding]:
    """One instance is all that a process sees."""
    instances = _instances(facts)
    if instances:
        text = "device 0 is a MIG instance: a process sees one, whatever it is given, and instances have no P2P"
        hint = "`nvidia-smi -i BUS_ID -mig 0` as root gives the whole card back"
        yield warn("mig", text, evidence=[device.name for device in instances], hint=hint)
        return
    on = [device.index for device in (facts.nvml.devices if facts.nvml else ()) if device.mig]
    if on:
        yield ok("mig", f"on for card{'s' if len(on) > 1 else ''} {ranges(on)} of nvidia-smi")


def _explains(listed: str, devices: tuple[DeviceDetail, ...], theirs: Mapping[str, int]) -> bool:
    """Whether each word is a UUID, or the number that nvidia-smi gives to the card: CUDA's own order is the same."""
    words = [word.strip() for word in listed.split(",")]
    return len(words) >= len(devices) and all(
        word.startswith("GPU-") or word == str(theirs.get(device.uuid.lower()))
        for word, device in zip(words, devices, strict=False)
    )


def order(facts: Facts) -> Finding:
    """Whether CUDA and nvidia-smi number the cards alike: the UUID tells."""
    assert facts.nvml is not None
    theirs = {device.uuid.lower(): device.index for device in facts.nvml.devices}
    unlike = [
        f"CUDA device {device.ordinal} is {theirs.get(device.uuid.lower(), 'no card')} of nvidia-smi"
        for device in facts.look.devices
        if theirs.get(device.uuid.lower()) != device.ordinal
    ]
    if not unlike:
        return ok("order", "CUDA and nvidia-smi number the cards alike")
    listed = facts.sources.environment.get(_VISIBLE) if facts.sources else None
    if listed is not None and _explains(listed, facts.look.devices, theirs):
        return ok("order", f"CUDA numbers those that {_VISIBLE} lists", evidence=unlike)
    hint = "CUDA_DEVICE_ORDER=PCI_BUS_ID orders CUDA's as nvidia-smi does; or name cards by UUID"
    return warn("order", "CUDA and nvidia-smi number the cards differently", evidence=unlike, hint=hint)
