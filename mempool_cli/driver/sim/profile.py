"""What a simulated machine is: read from a number, a profile of the package, or a TOML file."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from mempool_cli.errors import MempoolError
from mempool_cli.p2p import P2PTable, Pair, ordered_pairs
from mempool_cli.toml_file import convert, keys, parse, read_text

GIB = 1 << 30
H200_BYTES = 150_109_880_320
MAX_DEVICES = 1024
FAULTS = {
    "recycled-handle": "a recycled device pool handle inherits the destroyed pool's peers (nvbug 5698116)",
    "fresh-handles": "no pool handle ever comes back",
    "host-pool-revoke": "revoking access to a host pool answers SUCCESS and changes nothing",
    "drop-writes": "what a device writes to memory of another, or of the host, is lost without a word",
    "mirror": "a device sees a private copy of memory that is not its own (a virtual machine: nccl #2335)",
    "corrupt": "bytes change on the way to and from memory that is not the device's own",
    "hang": "work on memory that is not the device's own never ends (vllm #6893)",
    "lost-after-setaccess": "copies into a pool arrive as zeros once its access was set (nvbug 6098762)",
    "leak": "a kernel gets through to a pool that its device has no access to",
    "refuse": "copies to and from memory that is not the device's own are refused",
    "honest-pointer-flags": "CU_POINTER_ATTRIBUTE_ACCESS_FLAGS says what the pool says, not always READWRITE",
}
OF_PAIRS = ("drop-writes", "mirror", "corrupt", "hang", "lost-after-setaccess", "leak", "refuse")
"""Faults that a single pair can have: `mirror:2-5` is owner 2 and accessor 5, `mirror:host-5` a pool of the host."""

_PAIR = re.compile(r"(host|[0-9]{1,4})-([0-9]{1,4})")
_HINT = (
    "SPEC is a number of devices, a profile ({profiles}), or a TOML file (with a / or ending in .toml);"
    " then ,fault=NAME or ,fault=NAME:OWNER-ACCESSOR"
)
_UUIDS = uuid.UUID("8fc8b5a0-0000-4000-8000-000000000000")
_COMPUTE_MODES = {"default": 0, "prohibited": 2, "exclusive-process": 3}  # CUcomputemode

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_DEVICES)]


class SimDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One card. `uuid` is 32 hexadecimal digits, `memory` is in bytes."""

    name: str
    uuid: str
    pci_bus_id: str
    memory: int
    compute_capability: tuple[int, int]
    pools: bool
    host_pools: bool
    host_numa_pools: bool
    host_numa_id: int
    pageable_memory_access: bool = False
    compute_mode: int = _COMPUTE_MODES["default"]


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scripted failure: `call` answers `code` from its call number `after` + 1 on, `times` times (0: for ever).

    `device` limits it to calls that name this device, as any argument, or a pool, a stream or a context on it.
    """

    call: str
    code: int
    device: int | None = None
    after: Annotated[int, msgspec.Meta(ge=0)] = 0
    times: Annotated[int, msgspec.Meta(ge=0)] = 0


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A whole machine. `reach`: ordered pairs (accessor, owner) that can do P2P. Equal by content."""

    devices: tuple[SimDevice, ...]
    reach: frozenset[Pair]
    driver_version: int = 13000
    numa_nodes: int = 1
    failures: tuple[Failure, ...] = ()
    faults: frozenset[str] = frozenset()

    @property
    def digest(self) -> str:
        """A hash of the content: two SPECs with the same digest are the same machine."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


class _DeviceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[device]]` of a profile file: one card, or `count` alike."""

    name: str = "NVIDIA H200"
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_DEVICES)] = 1
    memory: Annotated[int, msgspec.Meta(gt=0)] = H200_BYTES
    compute_capability: tuple[int, int] = (9, 0)
    pools: bool = True
    host_pools: bool | None = None
    host_numa_pools: bool | None = None
    host_numa_id: int = 0
    pageable_memory_access: bool = False
    compute_mode: Literal["default", "prohibited", "exclusive-process"] = "default"
    uuid: str | None = None
    pci_bus_id: str | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A profile file."""

    device: tuple[_DeviceTable, ...]
    description: str = ""
    driver_version: Annotated[int, msgspec.Meta(ge=12000, lt=100000)] = 13000
    numa_nodes: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    p2p: P2PTable = P2PTable()
    failure: tuple[Failure, ...] = ()


def profile_names() -> list[str]:
    """The profiles in the package, sorted."""
    from importlib import resources

    return sorted(
        entry.name.removesuffix(".toml")
        for entry in resources.files("mempool_cli.driver.sim").joinpath("profiles").iterdir()
        if entry.name.endswith(".toml")
    )


def parse_spec(spec: str) -> Profile:
    """The machine that SPEC names. MempoolError `usage` or `input-file` says what is wrong with it."""
    base, *options = spec.split(",")
    profile = _uniform(int(base), spec) if re.fullmatch(r"[0-9]{1,9}", base) else _read(base, spec)
    faults = frozenset(_fault(option, spec, len(profile.devices)) for option in options)
    return msgspec.structs.replace(profile, faults=faults)


def _fault(option: str, spec: str, devices: int) -> str:
    key, _, fault = option.partition("=")
    name, colon, pair = fault.partition(":")
    if key != "fault":
        raise MempoolError("usage", f"--sim {spec}: {option!r} is not fault=NAME", hint=_hint())
    if name not in FAULTS:
        raise MempoolError(
            "usage", f"--sim {spec}: there is no fault {name!r}", hint=f"faults: {', '.join(sorted(FAULTS))}"
        )
    if not colon:
        return name
    if name not in OF_PAIRS:
        raise MempoolError("usage", f"--sim {spec}: the fault {name} is one of the driver, not of a pair")
    match = _PAIR.fullmatch(pair)
    owner, accessor = match.groups() if match else ("", "")
    if not match or owner == accessor or any(word != "host" and int(word) >= devices for word in (owner, accessor)):
        raise MempoolError(
            "usage",
            f"--sim {spec}: {pair!r} is no pair of this machine",
            hint=f"{name}:1-0 is memory of device 1 that device 0 accesses, {name}:host-0 memory of the host",
        )
    return f"{name}:{int(owner) if owner != 'host' else owner}-{int(accessor)}"


def _hint() -> str:
    return _HINT.format(profiles=", ".join(profile_names()))


def _uniform(count: int, spec: str) -> Profile:
    if count > MAX_DEVICES:
        raise MempoolError("usage", f"--sim {spec}: a simulated machine has at most {MAX_DEVICES} devices")
    table = _DeviceTable(count=max(count, 1))
    file = _File(device=(table,) if count else (), p2p=P2PTable(all=True))
    return _expand(file, f"--sim {spec}")


def _read(base: str, spec: str) -> Profile:
    if "/" in base or base.endswith(".toml"):
        return _parse(read_text(base, hint=_hint), base)
    if base not in profile_names():
        raise MempoolError("usage", f"--sim {spec}: there is no profile {base!r}", hint=_hint())
    from importlib import resources

    text = resources.files("mempool_cli.driver.sim").joinpath("profiles", f"{base}.toml").read_text("utf-8")
    return _parse(text, f"{base}.toml")


def _parse(text: str, file: str) -> Profile:
    table = parse(text, file)
    for entry in _tables(table.get("failure")):
        if "code" in entry:
            entry["code"] = _code(entry["code"], file)
    tables: dict[str, type[msgspec.Struct]] = {"device": _DeviceTable, "p2p": P2PTable, "failure": Failure}
    return _expand(convert(table, _File, file, hint=lambda: keys(_File, tables)), file)


def _tables(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _code(value: object, file: str) -> object:
    """A scripted code may be the driver's name or a number."""
    if isinstance(value, str):
        from mempool_cli.driver.codes import Code

        try:
            return int(Code[value])
        except KeyError:
            raise MempoolError(
                "input-file",
                f"{file}: failure.code: {value!r} is no code of the simulator",
                hint=f"use a number, or one of {', '.join(code.name for code in Code)}",
            ) from None
    return value


def _expand(file: _File, source: str) -> Profile:
    cards = [table for table in file.device for _ in range(table.count)]
    if len(cards) > MAX_DEVICES:
        raise MempoolError("input-file", f"{source}: {len(cards)} devices, at most {MAX_DEVICES}")
    devices = tuple(_device(table, ordinal, source) for ordinal, table in enumerate(cards))
    for kind in ("uuid", "pci_bus_id"):
        if len({getattr(device, kind) for device in devices}) < len(devices):
            raise MempoolError("input-file", f"{source}: two devices have the same {kind}")
    if file.failure:
        _check_calls(file.failure, source)
    return Profile(
        devices=devices,
        reach=ordered_pairs(file.p2p, len(devices), source),
        driver_version=file.driver_version,
        numa_nodes=file.numa_nodes,
        failures=file.failure,
    )


def _check_calls(failures: Sequence[Failure], source: str) -> None:
    # Loaded here alone: a simulated machine that a session answers for needs no driver port, which takes 2 ms.
    from mempool_cli.driver.port import NO_CALLS, Driver, driver_call

    calls = {driver_call(method) for method in vars(Driver) if not method.startswith("_") and method not in NO_CALLS}
    for failure in failures:
        if failure.call not in calls:
            raise MempoolError(
                "input-file",
                f"{source}: failure.call: {failure.call!r} is no call of the simulator",
                hint=f"use one of {', '.join(sorted(calls))}",
            )


def _device(table: _DeviceTable, ordinal: int, source: str) -> SimDevice:
    if table.count > 1 and (table.uuid or table.pci_bus_id):
        raise MempoolError("input-file", f"{source}: device: uuid and pci_bus_id need count = 1")
    digits = (table.uuid or uuid.uuid5(_UUIDS, str(ordinal)).hex).removeprefix("GPU-").replace("-", "").lower()
    if not re.fullmatch(r"[0-9a-f]{32}", digits):
        raise MempoolError("input-file", f"{source}: device.uuid: {table.uuid!r} is no UUID (32 hexadecimal digits)")
    return SimDevice(
        name=table.name,
        uuid=digits,
        pci_bus_id=table.pci_bus_id or f"{ordinal // 128:04x}:{ordinal % 128 * 2 + 1:02x}:00.0",
        memory=table.memory,
        compute_capability=table.compute_capability,
        pools=table.pools,
        host_pools=table.pools if table.host_pools is None else table.host_pools,
        host_numa_pools=table.pools if table.host_numa_pools is None else table.host_numa_pools,
        host_numa_id=table.host_numa_id,
        pageable_memory_access=table.pageable_memory_access,
        compute_mode=_COMPUTE_MODES[table.compute_mode],
    )
