"""Which device can reach which, as a TOML file states it: `[p2p]` of a simulated machine and of a policy."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from mempool_cli.errors import MempoolError

Pair = tuple[int, int]
"""Accessor and owner."""


class P2PTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[p2p]`: `all`, or `groups` within which every card reaches every other, and single ordered `pairs`."""

    all: bool = False
    groups: tuple[tuple[int, ...], ...] = ()
    pairs: tuple[Pair, ...] = ()


def ordered_pairs(table: P2PTable, count: int, source: str) -> frozenset[Pair]:
    """The pairs among so many devices; MempoolError `input-file`, which names `source`, for one that is none."""
    groups = {frozenset(group) for group in table.groups}
    # Before they are expanded: the pairs of what is no device could fill the memory.
    for device in sorted(frozenset().union(*groups)):
        if not 0 <= device < count:
            raise MempoolError("input-file", f"{source}: p2p.groups: there is no device {device} among the {count}")
    if table.all:
        groups = {frozenset(range(count))}
    pairs = {(a, b) for group in groups for a in group for b in group if a != b}
    return checked((*pairs, *table.pairs), count, source, "p2p")


def checked(pairs: Collection[Pair], count: int, source: str, key: str) -> frozenset[Pair]:
    """The pairs; MempoolError `input-file`, which names `source` and `key`, for one that is none."""
    for accessor, owner in pairs:
        if not (0 <= accessor < count and 0 <= owner < count) or accessor == owner:
            raise MempoolError(
                "input-file", f"{source}: {key}: ({accessor}, {owner}) is no pair of two of the {count} devices"
            )
    return frozenset(pairs)


def stated(reach: Collection[Pair], count: int) -> P2PTable:
    """The shortest table that says the same."""
    found = frozenset(reach)
    if count > 1 and len(found) == count * (count - 1):
        return P2PTable(all=True)
    groups: list[tuple[int, ...]] = []
    rest = set(found)
    for device in range(count):
        group = tuple(other for other in range(count) if other == device or {(device, other), (other, device)} <= found)
        inside = {(a, b) for a in group for b in group if a != b}
        if len(group) > 1 and group[0] == device and inside <= rest:
            groups.append(group)
            rest -= inside
    return P2PTable(groups=tuple(groups), pairs=tuple(sorted(rest)))
