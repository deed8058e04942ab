"""What NVML says of the machine: the cards as nvidia-smi numbers them, and why a pair cannot do P2P.

nvidia-ml-py, the extra `nvml`, is optional. It is asked in a process of its own, since NVML too can hang.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

from mempool_cli.child import Announce, run_trial

_SECONDS = 30.0


class P2PCaps(IntEnum):
    """nvmlGpuP2PCapsIndex_t, those that are asked for. In nvidia-ml-py READ is a tuple by mistake."""

    READ = 0
    WRITE = 1
    ATOMICS = 3


class P2PStatus(IntEnum):
    """nvmlGpuP2PStatus_t."""

    OK = 0
    CHIPSET_NOT_SUPPORTED = 1
    GPU_NOT_SUPPORTED = 2
    IOH_TOPOLOGY_NOT_SUPPORTED = 3
    DISABLED_BY_REGKEY = 4
    NOT_SUPPORTED = 5
    UNKNOWN = 6


class NvmlDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A card of the machine, visible to CUDA or not. None: NVML does not say."""

    index: int
    uuid: str
    pci_bus_id: str | None = None
    mig: bool | None = None
    persistence: bool | None = None


class NvmlLink(msgspec.Struct, frozen=True, kw_only=True):
    """What NVML says of an ordered pair, by UUID: names of P2PStatus; None where it does not say."""

    accessor: str
    owner: str
    read: str | None
    write: str | None
    atomics: str | None

    @property
    def reason(self) -> str | None:
        """The first status that is not OK, or OK; None when there is none at all."""
        said = [each for each in (self.read, self.write) if each is not None]
        return next((each for each in said if each != P2PStatus.OK.name), said[0] if said else None)


class Nvml(msgspec.Struct, frozen=True, kw_only=True):
    """What NVML answered. `absent`: nvidia-ml-py is not installed; `failure`: why it did not answer."""

    absent: bool = False
    failure: str | None = None
    driver_version: str | None = None
    confidential: bool | None = None
    devices: tuple[NvmlDevice, ...] = ()
    links: tuple[NvmlLink, ...] = ()


def look() -> Nvml:
    """What NVML says; nothing is raised."""
    outcome = run_trial("mempool_cli.doctor.nvml:trial", b"", limit=_SECONDS)
    if outcome.result is None:
        return Nvml(failure=outcome.end)
    return msgspec.json.decode(outcome.result, type=Nvml)


def trial(payload: bytes, announce: Announce) -> bytes:
    """-> Nvml, in the child."""
    try:
        import pynvml
    except ImportError:
        return msgspec.json.encode(Nvml(absent=True))
    announce("nvmlInit")
    return msgspec.json.encode(ask(pynvml))


class _Library:
    """The module of nvidia-ml-py, or what a test gives instead."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def __call__(self, function: str, *about: Any) -> Any:
        """What it answers; None when it does not, or is older than the function. Bytes, of old releases, as text."""
        try:
            value = getattr(self._nvml, function)(*about)
        except (self._nvml.NVMLError, AttributeError):
            return None
        return value.decode(errors="replace") if isinstance(value, bytes) else value


def ask(nvml: Any) -> Nvml:
    """What the library answers, through `nvml`, the module of nvidia-ml-py."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Nvml(failure=str(error))
    library = _Library(nvml)
    handles = [library("nvmlDeviceGetHandleByIndex", index) for index in range(library("nvmlDeviceGetCount") or 0)]
    found = [(_device(library, index, handle), handle) for index, handle in enumerate(handles) if handle is not None]
    state = library("nvmlSystemGetConfComputeState")
    return Nvml(
        driver_version=library("nvmlSystemGetDriverVersion"),
        confidential=None if state is None else bool(state.ccFeature),
        devices=tuple(device for device, _ in found),
        links=tuple(
            NvmlLink(accessor=a.uuid, owner=b.uuid, **_status(library, accessor, owner))
            for a, accessor in found
            for b, owner in found
            if a is not b
        ),
    )


def _device(library: _Library, index: int, handle: Any) -> NvmlDevice:
    bus = library("nvmlDeviceGetPciInfo", handle)
    mig = library("nvmlDeviceGetMigMode", handle)
    persistence = library("nvmlDeviceGetPersistenceMode", handle)
    bus_id = None if bus is None else bus.busId
    return NvmlDevice(
        index=index,
        uuid=library("nvmlDeviceGetUUID", handle) or f"index {index}",
        pci_bus_id=bus_id.decode(errors="replace") if isinstance(bus_id, bytes) else bus_id,
        mig=None if mig is None else bool(mig[0]),
        persistence=None if persistence is None else bool(persistence),
    )


def _status(library: _Library, accessor: Any, owner: Any) -> dict[str, str | None]:
    """For each of P2PCaps, in lower case, the name of a P2PStatus."""
    codes = {cap.name.lower(): library("nvmlDeviceGetP2PStatus", accessor, owner, int(cap)) for cap in P2PCaps}
    return {name: None if code is None else _status_name(code) for name, code in codes.items()}


def _status_name(code: int) -> str:
    return P2PStatus(code).name if code in set(P2PStatus) else f"status {code}"
