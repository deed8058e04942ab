"""The calls about the process and its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import DeviceAttribute, HandleType, P2PAttribute
from mempool_cli.driver.sim.calls import Calls
from mempool_cli.driver.sim.profile import SimDevice
from mempool_cli.driver.sim.visible import visible_devices

if TYPE_CHECKING:
    from mempool_cli.driver.sim.machine import Machine

SUPPORTED_HANDLE_TYPES = HandleType.POSIX_FILE_DESCRIPTOR | HandleType.FABRIC


class Devices(Calls):
    """The devices that the process sees."""

    def __init__(self, machine: Machine, visible: str | None) -> None:
        super().__init__(machine, visible)
        self._devices: list[SimDevice] = []
        self._physical: list[int] = []

    def _device(self, method: str, device: int, *others: int) -> SimDevice:
        self._enter(method, device, *others)
        if not 0 <= device < len(self._devices):
            self._fail(method, Code.CUDA_ERROR_INVALID_DEVICE)
        return self._devices[device]

    def _reaches(self, accessor: int, owner: int) -> bool:
        return (self._physical[accessor], self._physical[owner]) in self.machine.profile.reach

    def init(self) -> None:
        self._enter("init")
        code, self._physical = visible_devices(self.machine.profile.devices, self._visible)
        self._check("init", code)
        self._devices = [self.machine.profile.devices[index] for index in self._physical]
        self._initialized = True

    def driver_get_version(self) -> int:
        self._enter("driver_get_version")
        return self.machine.profile.driver_version

    def device_get_count(self) -> int:
        self._enter("device_get_count")
        return len(self._devices)

    def device_get(self, ordinal: int) -> int:
        self._device("device_get", ordinal)
        return ordinal

    def device_get_name(self, device: int) -> str:
        return self._device("device_get_name", device).name

    def device_get_uuid(self, device: int) -> bytes:
        return bytes.fromhex(self._device("device_get_uuid", device).uuid)

    def device_get_pci_bus_id(self, device: int) -> str:
        return self._device("device_get_pci_bus_id", device).pci_bus_id

    def device_get_attribute(self, attribute: int, device: int) -> int:
        card = self._device("device_get_attribute", device)
        values = {
            DeviceAttribute.INTEGRATED: 0,
            DeviceAttribute.COMPUTE_MODE: card.compute_mode,
            DeviceAttribute.COMPUTE_CAPABILITY_MAJOR: card.compute_capability[0],
            DeviceAttribute.COMPUTE_CAPABILITY_MINOR: card.compute_capability[1],
            DeviceAttribute.HOST_NATIVE_ATOMIC_SUPPORTED: 0,
            DeviceAttribute.PAGEABLE_MEMORY_ACCESS: int(card.pageable_memory_access),
            DeviceAttribute.MEMORY_POOLS_SUPPORTED: int(card.pools),
            DeviceAttribute.MEMPOOL_SUPPORTED_HANDLE_TYPES: SUPPORTED_HANDLE_TYPES if card.pools else 0,
            DeviceAttribute.HOST_NUMA_ID: card.host_numa_id,
            DeviceAttribute.HOST_NUMA_MEMORY_POOLS_SUPPORTED: int(card.host_numa_pools),
            DeviceAttribute.HOST_MEMORY_POOLS_SUPPORTED: int(card.host_pools),
        }
        if attribute not in values:
            self._fail("device_get_attribute", Code.CUDA_ERROR_INVALID_VALUE)
        return values[DeviceAttribute(attribute)]

    def device_can_access_peer(self, device: int, peer: int) -> bool:
        self._device("device_can_access_peer", device, peer)
        if not 0 <= peer < len(self._devices):
            self._fail("device_can_access_peer", Code.CUDA_ERROR_INVALID_DEVICE)
        return self._reaches(device, peer)

    def device_get_p2p_attribute(self, attribute: int, source: int, destination: int) -> int:
        self._device("device_get_p2p_attribute", source, destination)
        if not 0 <= destination < len(self._devices) or source == destination:
            self._fail("device_get_p2p_attribute", Code.CUDA_ERROR_INVALID_DEVICE)
        if attribute not in set(P2PAttribute):
            self._fail("device_get_p2p_attribute", Code.CUDA_ERROR_INVALID_VALUE)
        reached = self._reaches(source, destination)
        return 0 if attribute == P2PAttribute.PERFORMANCE_RANK else int(reached)
