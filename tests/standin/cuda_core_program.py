"""A program that uses NVIDIA's cuda-core; prints what the driver says at each step as one JSON object."""

from __future__ import annotations

import json
from typing import Any

from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions

from mempool_cli.devices import list_devices
from mempool_cli.driver.cuda import CudaDriver
from mempool_cli.driver.port import device_location
from mempool_cli.model import Pool
from mempool_cli.probe import Target, read_row

_DEVICES = 4
_RECREATED = 20


class Observer:
    """Records who has access to a pool, after each step, as the driver and as cuda-core see it."""

    def __init__(self) -> None:
        self.driver = CudaDriver()
        self.steps: dict[str, dict[str, list[int]]] = {}

    def access(self, resource: Any) -> list[int]:
        """The flags of each device."""
        pool = int(resource.handle)
        return [self.driver.mem_pool_get_access(pool, device_location(device)) for device in range(_DEVICES)]

    def probed(self, resource: Any) -> list[int]:
        """The peers that a probe of the pool finds."""
        owner = resource.device_id
        pool = Pool(name="resource", roles=(), location=str(owner), owner=owner)
        target = Target(pool, int(resource.handle), device_location(owner))
        row = read_row(self.driver, target, list_devices(self.driver))
        return [cell.device for cell in row.cells if cell.access == "rw" and cell.device not in (None, owner)]

    def record(self, step: str, resource: Any) -> None:
        """Notes one step. What else can look at this process's pools belongs here too."""
        peers = sorted(device.device_id for device in resource.peer_accessible_by)
        self.steps[step] = {"driver": self.access(resource), "cuda-core": peers, "probe": self.probed(resource)}


def _resource(device: Any) -> Any:
    return DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=64 << 20))


def change_peers(observer: Observer, devices: list[Any]) -> None:
    """Sets, replaces and clears the peers of a resource on each device."""
    for device in devices:
        device.set_current()
        resource = _resource(device)
        owner = device.device_id
        observer.record(f"{owner} created", resource)
        resource.peer_accessible_by = [peer for peer in range(_DEVICES) if peer != owner]
        observer.record(f"{owner} set", resource)
        resource.peer_accessible_by = [(owner + 1) % _DEVICES]
        observer.record(f"{owner} replaced", resource)
        buffer = resource.allocate(1 << 20, stream=device.create_stream())
        buffer.close()
        resource.peer_accessible_by = []
        observer.record(f"{owner} cleared", resource)


def count_inherited(observer: Observer, device: Any) -> int:
    """How many of the pools created after the close of one with peers have access that nobody asked for."""
    inherited = 0
    device.set_current()
    for _ in range(_RECREATED):
        resource = _resource(device)
        inherited += observer.access(resource) != [3, 0, 0, 0]
        resource.peer_accessible_by = []
        resource.peer_accessible_by = range(1, _DEVICES)
        resource.close()
    return inherited


def main() -> None:
    """Runs it all on four devices."""
    devices = [Device(ordinal) for ordinal in range(_DEVICES)]
    observer = Observer()
    change_peers(observer, devices)
    print(json.dumps({"steps": observer.steps, "inherited": count_inherited(observer, devices[0])}))


if __name__ == "__main__":
    main()
