"""A snapshot of the machine as it is now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from mempool_cli import __version__
from mempool_cli.doctor import driver, host, iommu
from mempool_cli.doctor.findings import Facts
from mempool_cli.doctor.look import Link
from mempool_cli.doctor.nvml import NvmlDevice, NvmlLink
from mempool_cli.doctor.run import examine, gather
from mempool_cli.doctor.sources import Sources
from mempool_cli.driver import DriverSource
from mempool_cli.machine import MPS_PROCESS
from mempool_cli.snapshot.document import SCHEMA, Capability, DeviceState, Machine, PoolAccess, Snapshot
from mempool_cli.utf8 import utf8


def take(source: DriverSource) -> Snapshot:
    """What can be known of it, also where CUDA does not start; nothing is raised."""
    return from_facts(gather(source, pairs=True))


def from_facts(facts: Facts) -> Snapshot:
    """The facts, by UUID."""
    found = facts.look
    return Snapshot(
        schema=SCHEMA,
        mempool=__version__,
        time=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        driver=found.driver,
        failure=found.failure,
        machine=_machine(facts.sources) if facts.sources else Machine(),
        devices=_devices(facts),
        capability=_capability(facts),
        access=_access(facts),
        findings=examine(facts),
    )


def _machine(sources: Sources) -> Machine:
    return Machine(
        host_name=sources.text("/proc/sys/kernel/hostname"),
        kernel=sources.text("/proc/sys/kernel/osrelease"),
        kernel_module=driver.kernel_module(sources),
        iommu=iommu.mode(sources),
        hypervisor=host.hypervisor_name(sources),
        container=bool(host.containers(sources)),
        wsl=host.is_wsl(sources),
        mps=any(name.startswith(MPS_PROCESS) for name in sources.processes()),
        cuda_visible_devices=_variable(sources, "CUDA_VISIBLE_DEVICES"),
        cuda_device_order=_variable(sources, "CUDA_DEVICE_ORDER"),
    )


def _variable(sources: Sources, name: str) -> str | None:
    """As the document has it: a machine must not differ from what was written of it."""
    value = sources.environment.get(name)
    return None if value is None else utf8(value)


def _devices(facts: Facts) -> tuple[DeviceState, ...]:
    found = facts.look
    cards = {card.uuid.lower(): card for card in (facts.nvml.devices if facts.nvml else ())}
    return tuple(
        DeviceState(
            uuid=device.uuid,
            ordinal=device.ordinal,
            pci_bus_id=device.pci_bus_id,
            name=device.name,
            compute_capability=device.compute_capability,
            pools_supported=device.pools_supported,
            host_pools_supported=device.host_pools_supported,
            host_numa_pools_supported=device.host_numa_pools_supported,
            pool_handle_types=device.pool_handle_types,
            host_numa_id=device.host_numa_id,
            compute_mode=compute_mode,
            integrated=integrated,
            **_card(cards.get(device.uuid.lower())),
        )
        for device, compute_mode, integrated in zip(
            found.devices, found.compute_modes, found.integrated, strict=bool(found.integrated)
        )
    )


def _card(card: NvmlDevice | None) -> dict[str, Any]:
    return {"nvml_index": card.index, "mig": card.mig, "persistence": card.persistence} if card else {}


def _capability(facts: Facts) -> tuple[Capability, ...]:
    uuids = [device.uuid for device in facts.look.devices]
    said = {(link.accessor.lower(), link.owner.lower()): link for link in (facts.nvml.links if facts.nvml else ())}

    def capability(link: Link) -> Capability:
        accessor, owner = uuids[link.accessor], uuids[link.owner]
        return Capability(
            accessor=accessor,
            owner=owner,
            capable=link.capable,
            native_atomics=link.native_atomics,
            performance_rank=link.performance_rank,
            **_status(said.get((accessor.lower(), owner.lower()))),
        )

    return tuple(capability(link) for link in facts.look.links)


def _status(link: NvmlLink | None) -> dict[str, str | None]:
    return {"nvml_read": link.read, "nvml_write": link.write, "nvml_atomics": link.atomics} if link else {}


def _access(facts: Facts) -> tuple[PoolAccess, ...]:
    uuids = [device.uuid for device in facts.look.devices]
    return tuple(
        PoolAccess(
            owner=uuids[row.pool.owner],
            accessor=None if cell.device is None else uuids[cell.device],
            access=cell.access,
        )
        for row in facts.look.access
        if row.pool.owner is not None
        for cell in (row.host, *row.cells)
    )
