"""What a machine must be, as a TOML file says it; and the file that says what this machine is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cached_property
from itertools import groupby
from typing import Annotated, Literal

import msgspec

from mempool_cli.errors import MempoolError
from mempool_cli.model import DeviceDetail, DriverInfo
from mempool_cli.p2p import P2PTable, Pair, checked, ordered_pairs, stated
from mempool_cli.toml_file import convert, keys, parse, read_text

Wish = Literal["must", "must-not", "may"]

_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,7}")
_MAX_DEVICES = 1024


class _DriverTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[driver]`: the least versions, `13.0` of CUDA, `580.95.05` of the kernel module."""

    cuda: str | None = None
    version: str | None = None


class _DeviceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[device]]`: one card, or `count` alike, in the order of ordinals."""

    name: str | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    pools: bool = True
    host_pools: bool | None = None


class _P2PTable(P2PTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[p2p]`: the pairs that must be capable; `not_pairs` must not; `others`, that are in neither."""

    not_pairs: tuple[Pair, ...] = ()
    others: Literal["must-not", "may"] = "must-not"


class _ChecksTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[checks]`: which are run, by id or glob."""

    select: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    data: bool = False


class _LimitsTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: the time for each trial."""

    seconds: Annotated[int, msgspec.Meta(ge=1, le=86400)] = 60


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """A policy file. Nothing is demanded of what it does not name."""

    description: str = ""
    driver: _DriverTable = _DriverTable()
    device: tuple[_DeviceTable, ...] = ()
    p2p: _P2PTable | None = None
    checks: _ChecksTable = _ChecksTable()
    limits: _LimitsTable = _LimitsTable()

    @cached_property
    def devices(self) -> tuple[_DeviceTable, ...]:
        """A table a device; empty where the file names none."""
        return tuple(table for table in self.device for _ in range(table.count))

    @cached_property
    def _must(self) -> frozenset[Pair]:
        return ordered_pairs(self.p2p, len(self.devices), "") if self.p2p else frozenset()

    @cached_property
    def _must_not(self) -> frozenset[Pair]:
        return frozenset(self.p2p.not_pairs if self.p2p else ())

    def wish(self, accessor: int, owner: int) -> Wish | None:
        """Whether the pair has to be capable; None where the file does not say anything of pairs."""
        if self.p2p is None:
            return None
        if (accessor, owner) in self._must:
            return "must"
        return "must-not" if (accessor, owner) in self._must_not else self.p2p.others

    def without_pools(self, device: int) -> bool:
        """Whether the file says that the device has none."""
        return device < len(self.devices) and not self.devices[device].pools

    def without_host_pools(self, device: int) -> bool:
        """Whether the file says that the device cannot use pools in host memory."""
        if device >= len(self.devices):
            return False
        table = self.devices[device]
        return not table.pools or table.host_pools is False

    @property
    def wants_no_host_pool(self) -> bool:
        """Whether none of its devices can use pools in host memory."""
        return bool(self.devices) and all(map(self.without_host_pools, range(len(self.devices))))

    @property
    def wants_no_pair(self) -> bool:
        """Whether there is no pair of its devices, both with pools, that has to be capable."""
        able = {device for device, table in enumerate(self.devices) if table.pools}
        if not self.devices or (self.p2p is None and len(able) > 1):
            return False
        return not any(able.issuperset(pair) for pair in self._must)


def read_policy(path: str) -> Policy:
    """The policy; MempoolError `input-file` names the file and the key of what is wrong or contradicts itself."""
    tables: dict[str, type[msgspec.Struct]] = {
        "driver": _DriverTable,
        "device": _DeviceTable,
        "p2p": _P2PTable,
        "checks": _ChecksTable,
        "limits": _LimitsTable,
    }
    policy = convert(parse(read_text(path), path), Policy, path, hint=lambda: keys(Policy, tables))
    for key in ("cuda", "version"):
        value = getattr(policy.driver, key)
        if value is not None and not _VERSION.fullmatch(value):
            raise MempoolError("input-file", f"{path}: driver.{key}: {value!r} is no version, as 13.0 is")
    count = sum(table.count for table in policy.device)
    if count > _MAX_DEVICES:
        raise MempoolError("input-file", f"{path}: device: {count} devices, at most {_MAX_DEVICES}")
    if policy.p2p is not None:
        _check_pairs(policy, policy.p2p, path)
    return policy


def _check_pairs(policy: Policy, table: _P2PTable, path: str) -> None:
    count = len(policy.devices)
    if not count:
        raise MempoolError("input-file", f"{path}: p2p: there is no [[device]] whose pairs it could be about")
    both = ordered_pairs(table, count, path) & checked(table.not_pairs, count, path, "p2p.not_pairs")
    for accessor, owner in sorted(both):
        where = "p2p.all" if table.all else "p2p.groups or p2p.pairs"
        raise MempoolError(
            "input-file", f"{path}: p2p.not_pairs: ({accessor}, {owner}) must not be capable, and {where} says it must"
        )


def as_version(text: str) -> tuple[int, ...]:
    """`580.95.05` as numbers, which compare as versions do: 13.0.0 is 13.0."""
    numbers = [int(part) for part in text.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def policy_of(driver: DriverInfo | None, devices: Sequence[DeviceDetail]) -> str:
    """The text of a policy that this machine fulfils."""
    reach = {(device.ordinal, peer) for device in devices for peer in device.peers}
    lines = ["# of a simulated machine: no hardware was asked"] if driver and driver.kind == "sim" else []
    lines += ["# What this machine is, and must be: `mempool check FILE`", "", "[driver]"]
    if driver:
        lines.append(f'cuda = "{driver.cuda_version}"  # at least')
    if driver and driver.kernel_module:
        lines.append(f'version = "{driver.kernel_module.version}"  # of the kernel module, at least')
    for (name, pools, host), alike in groupby(devices, key=_kind):
        lines += ["", "[[device]]", f"name = {_string(name)}", f"count = {len(list(alike))}"]
        lines += ["pools = false"] * (not pools) + ["host_pools = false"] * (not host)
    table = stated(reach, len(devices))
    if devices:
        lines += ["", "[p2p]  # (accessor, owner): who can reach whose memory; all others must not"]
        lines += ["all = true"] if table.all else [f"groups = {_array(table.groups)}", f"pairs = {_array(table.pairs)}"]
        lines.append('others = "must-not"  # or "may"')
    lines += ["", "[checks]", "data = false  # true: mempool verify, too", "skip = []"]
    lines += ["", "[limits]", "seconds = 60  # of each trial"]
    return "\n".join(lines) + "\n"


def _kind(device: DeviceDetail) -> tuple[str, bool, bool]:
    return device.name, device.pools_supported, device.host_pools_supported


def _string(text: str) -> str:
    """As TOML has it, in ASCII; JSON's pairs of surrogates are no TOML."""
    spelled = (char if char.isascii() and char.isprintable() else f"\\U{ord(char):08x}" for char in text)
    return '"' + "".join(f"\\{char}" if char in ('"', "\\") else char for char in spelled) + '"'


def _array(rows: Sequence[Sequence[int]]) -> str:
    return json.dumps([list(row) for row in rows])
