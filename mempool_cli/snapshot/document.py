"""The document of `mempool snapshot`, schema `mempool-snapshot/1`: within it there are only additions."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from mempool_cli import toml_file
from mempool_cli.errors import MempoolError, Problem
from mempool_cli.machine import redacted
from mempool_cli.model import Access, DriverInfo, Finding, KernelModule

SCHEMA = "mempool-snapshot/1"
_HINT = "`mempool snapshot -o FILE` writes one"


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """A visible device. None: not answered, or not asked."""

    uuid: str
    ordinal: int
    pci_bus_id: str
    name: str
    compute_capability: str
    pools_supported: bool
    host_pools_supported: bool
    host_numa_pools_supported: bool
    pool_handle_types: int
    host_numa_id: int
    compute_mode: int | None = None
    integrated: bool | None = None
    nvml_index: int | None = None
    mig: bool | None = None
    persistence: bool | None = None


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """What CUDA, and NVML, say of an ordered pair, by UUID. None: not answered, or not asked."""

    accessor: str
    owner: str
    capable: bool | None
    native_atomics: bool | None = None
    performance_rank: int | None = None
    nvml_read: str | None = None
    nvml_write: str | None = None
    nvml_atomics: str | None = None


class PoolAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Who may access the owner's default pool in a new process. `accessor` is None for the host."""

    owner: str
    accessor: str | None
    access: Access | None


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The host. None: not readable, and everything of a simulated machine."""

    host_name: str | None = None
    kernel: str | None = None
    kernel_module: KernelModule | None = None
    iommu: str | None = None
    hypervisor: str | None = None
    container: bool | None = None
    wsl: bool | None = None
    mps: bool | None = None
    cuda_visible_devices: str | None = None
    cuda_device_order: str | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A machine at a time, ISO 8601 in UTC. `failure`: why CUDA could not be asked, or not to the end."""

    schema: str
    mempool: str
    time: str
    redacted: bool = False
    driver: DriverInfo | None
    failure: Problem | None
    machine: Machine
    devices: tuple[DeviceState, ...]
    capability: tuple[Capability, ...]
    access: tuple[PoolAccess, ...]
    findings: tuple[Finding, ...]


def text_of(snapshot: Snapshot, *, redact: bool) -> str:
    """The document, pretty-printed ASCII. With `redact` a device is known by its ordinal alone."""
    text = json.dumps(msgspec.to_builtins(snapshot), ensure_ascii=False)
    if redact:
        for device in snapshot.devices:
            text = text.replace(device.uuid, f"(redacted {device.ordinal})")
        text = json.dumps({**redacted(json.loads(text)), "redacted": True}, ensure_ascii=False)
    strict = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # bytes in a name that were no UTF-8
    return json.dumps(json.loads(strict), indent=1) + "\n"


def read(file: str) -> Snapshot:
    """The snapshot in a file. MempoolError `input-file` names the file, and the key that is wrong or twice there."""
    try:
        document: Any = json.loads(toml_file.read_text(file, hint=lambda: _HINT))
    except (ValueError, RecursionError) as error:
        raise MempoolError("input-file", f"{file}: not JSON: {error}", hint=_HINT) from error
    found = document.get("schema") if isinstance(document, dict) else None
    if found != SCHEMA:
        what = f"schema: {found!r}" if isinstance(found, str) else "there is no schema in it"
        raise MempoolError("input-file", f"{file}: {what}, and not {SCHEMA!r}", hint=_HINT)
    snapshot = toml_file.convert(document, Snapshot, file, hint=lambda: _HINT)
    if snapshot.redacted:
        hint = "compare snapshots that were taken without --redact"
        raise MempoolError("input-file", f"{file}: redacted: its devices cannot be told apart by UUID", hint=hint)
    named = {
        "devices": [f"the UUID {device.uuid}" for device in snapshot.devices],
        "capability": [f"accessor {pair.accessor} and owner {pair.owner}" for pair in snapshot.capability],
        "access": [f"accessor {cell.accessor or 'host'} and owner {cell.owner}" for cell in snapshot.access],
    }
    for key, names in named.items():
        for name, count in Counter(names).items():
            if count > 1:
                raise MempoolError("input-file", f"{file}: {key}: {count} have {name}", hint=_HINT)
    return snapshot
