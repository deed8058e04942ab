"""The visible devices, and which one a user means by an ordinal, a UUID, its prefix or a PCI bus id."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Any

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import DeviceAttribute, Driver
from mempool_cli.errors import DriverError, MempoolError
from mempool_cli.model import Device, DeviceDetail
from mempool_cli.wording import ranges

NO_POOLS = "old cards have none, and vGPU profiles that are a slice of a card often have none"
EVERY = ("all", "peers")
_ORDINAL = re.compile(r"[0-9]{1,9}")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f-]+", re.IGNORECASE)
_BUS_ID = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-9a-f]))?", re.IGNORECASE)


def list_devices(driver: Driver) -> tuple[Device, ...]:
    """The visible devices in the order of ordinals. Driver calls: 1, and 5 a device."""
    return tuple(Device(**_identity(driver, ordinal)) for ordinal in range(driver.device_get_count()))


def list_details(driver: Driver) -> tuple[DeviceDetail, ...]:
    """The visible devices with their pool capabilities. Driver calls: 1, 11 a device, 1 an ordered pair."""
    count = driver.device_get_count()
    return tuple(_detail(driver, ordinal, count) for ordinal in range(count))


def _identity(driver: Driver, ordinal: int) -> dict[str, Any]:
    device = driver.device_get(ordinal)
    name = driver.device_get_name(device)
    return {
        "ordinal": ordinal,
        "uuid": _spell_uuid(driver.device_get_uuid(device), name),
        "pci_bus_id": driver.device_get_pci_bus_id(device),
        "name": name,
        "pools_supported": bool(driver.device_get_attribute(DeviceAttribute.MEMORY_POOLS_SUPPORTED, device)),
    }


def _detail(driver: Driver, ordinal: int, count: int) -> DeviceDetail:
    def attribute(which: DeviceAttribute) -> int:
        return driver.device_get_attribute(which, ordinal)

    reach = {peer: _reached(driver, ordinal, peer) for peer in range(count) if peer != ordinal}
    major = attribute(DeviceAttribute.COMPUTE_CAPABILITY_MAJOR)
    return DeviceDetail(
        **_identity(driver, ordinal),
        compute_capability=f"{major}.{attribute(DeviceAttribute.COMPUTE_CAPABILITY_MINOR)}",
        host_pools_supported=supports(driver, DeviceAttribute.HOST_MEMORY_POOLS_SUPPORTED, ordinal),
        host_numa_pools_supported=supports(driver, DeviceAttribute.HOST_NUMA_MEMORY_POOLS_SUPPORTED, ordinal),
        pool_handle_types=attribute(DeviceAttribute.MEMPOOL_SUPPORTED_HANDLE_TYPES),
        host_numa_id=attribute(DeviceAttribute.HOST_NUMA_ID),
        peers=tuple(peer for peer, reached in reach.items() if reached),
        peers_unknown=tuple(peer for peer, reached in reach.items() if reached is None),
    )


def _reached(driver: Driver, ordinal: int, peer: int) -> bool | None:
    """Whether a device can reach another; None when the driver does not answer, which must not hide the rest."""
    try:
        return driver.device_can_access_peer(ordinal, peer)
    except DriverError:
        return None


def supports(driver: Driver, which: DeviceAttribute, device: int) -> bool:
    """Whether an attribute is set. A driver that does not know it does not have what it is about: False."""
    try:
        return bool(driver.device_get_attribute(which, device))
    except DriverError as error:
        if error.words.code == Code.CUDA_ERROR_INVALID_VALUE:
            return False
        raise


def _spell_uuid(raw: bytes, name: str) -> str:
    """The driver gives 16 bytes for both kinds; only the name of a MIG instance tells that it is one."""
    return f"{'MIG' if ' MIG ' in name else 'GPU'}-{uuid.UUID(bytes=raw)}"


def is_device_word(word: str) -> bool:
    """Whether `word` has the form of a device; it need not exist."""
    return bool(_ORDINAL.fullmatch(word) or _UUID.fullmatch(word) or _BUS_ID.fullmatch(word))


def resolve_device(word: str, devices: Sequence[Device]) -> int:
    """The ordinal of the device that `word` names. MempoolError `unknown-device`."""
    if _ORDINAL.fullmatch(word):
        if int(word) < len(devices):
            return int(word)
        raise MempoolError(
            "unknown-device", f"there is no device {int(word)}: {_span(devices)}", hint="`mempool devices` lists them"
        )
    if _UUID.fullmatch(word):
        return _only(word, [d.ordinal for d in devices if d.uuid.lower().startswith(word.lower())], devices)
    if _BUS_ID.fullmatch(word):
        return _only(word, [d.ordinal for d in devices if _bus(d.pci_bus_id) == _bus(word)], devices)
    raise MempoolError(
        "unknown-device",
        f"{word!r} names no device",
        hint="a device is an ordinal (0), a UUID or its beginning (GPU-8fc8), or a PCI bus id (0000:19:00.0)",
    )


def _only(word: str, hits: list[int], devices: Sequence[Device]) -> int:
    if len(hits) == 1:
        return hits[0]
    found = f"{word} fits devices {ranges(hits)}" if hits else f"no visible device is {word}: {_span(devices)}"
    raise MempoolError("unknown-device", found, hint="`mempool devices` lists UUIDs and bus ids")


def _bus(text: str) -> tuple[int, ...]:
    """Bus ids as numbers: nvidia-smi writes eight digits of domain where the driver writes four."""
    match = _BUS_ID.fullmatch(text)
    return tuple(int(part or "0", 16) for part in match.groups()) if match else ()


def _span(devices: Sequence[Device]) -> str:
    if len(devices) == 1:
        return "only device 0 is visible"
    return f"devices 0 to {len(devices) - 1} are visible" if devices else "no device is visible"


def no_pool_support(device: Device) -> MempoolError:
    """The error for a pool on a card that has none."""
    return MempoolError(
        "no-pool-support", f"device {device.ordinal} ({device.name}) has no memory pool support", hint=NO_POOLS
    )
