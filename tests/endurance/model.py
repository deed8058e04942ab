"""A plain model of a session on a machine of four devices: who may access which pool, and what a command makes of it.

Devices 0 to 2 have pools, and device 3 has none. 0 and 1 reach each other, and 2 reaches 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MACHINE = """\
[[device]]
count = 3
[[device]]
pools = false
[p2p]
groups = [[0, 1]]
pairs = [[2, 0]]
"""
DEVICES = range(4)
WITH_POOLS = range(3)
REACH = {(0, 1), (1, 0), (2, 0)}

# Each as often as it is to be tried.
POOLS = [*"aabb01", "a", "b", "c", "2", "current:0", "current:1", "default:1", "pool-1", "3", "7", "nobody"]
LOCATIONS = [*"000112", "host", "numa:0", "3", "7"]
NAMES = [None, None, *"abcc", "host", "9"]
WORDS = [*"001112", "0-1", "peers", "peers", "2", "all", "3", "7"]

Grants = dict[str, frozenset[int]]


class Refused(Exception):  # noqa: N818
    """The command ends with this code, and nothing was changed."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class State:
    """Where each pool is; which devices but its owner may access it; which pool is current where."""

    place: dict[str, str] = field(default_factory=lambda: {f"default:{device}": str(device) for device in DEVICES})
    access: Grants = field(default_factory=lambda: {f"default:{device}": frozenset() for device in DEVICES})
    current: dict[int, str] = field(default_factory=lambda: {device: f"default:{device}" for device in WITH_POOLS})

    def owner(self, pool: str) -> int | None:
        return int(self.place[pool]) if self.place[pool].isdigit() else None

    def pool(self, word: str) -> str:
        """The pool that the word names."""
        if word in self.access and not word.startswith("default:"):
            return word
        kind, _, number = word.rpartition(":")
        if not number.isdigit():
            raise Refused("unknown-pool")
        device = _device(number)
        if device not in WITH_POOLS:
            raise Refused("no-pool-support")
        return self.current[device] if kind == "current" else f"default:{device}"

    def given(self, pool: str, access: frozenset[int]) -> State:
        return replace(self, access={**self.access, pool: access})

    def with_pool(self, pool: str, place: str, access: set[int] | frozenset[int]) -> State:
        return State({**self.place, pool: place}, {**self.access, pool: frozenset(access)}, self.current)


Change = Callable[[State], State]


def _device(word: str) -> int:
    if int(word) not in DEVICES:
        raise Refused("unknown-device")
    return int(word)


def _capable(owner: int | None, device: int) -> bool:
    return device in WITH_POOLS and (owner is None or (device, owner) in REACH)


def _devices(words: Sequence[str], owner: int | None) -> frozenset[int]:
    found: set[int] = set()
    for word in words:
        others = [device for device in DEVICES if device != owner]
        match word:
            case "all":
                found |= set(others)
            case "peers":
                found |= {device for device in others if _capable(owner, device)}
            case "0-1":
                found |= {0, 1}
            case _:
                found.add(_device(word))
    return frozenset(found)


def _check_capable(owner: int | None, devices: frozenset[int], *, force: bool = False) -> None:
    if not devices <= set(WITH_POOLS):
        raise Refused("no-pool-support")
    if not force and not all(_capable(owner, device) for device in devices):
        raise Refused("not-peer-capable")


# --- what each command does ---


def grant(word: str, to: Sequence[str], *, only: bool = False, force: bool = False, dry_run: bool = False) -> Change:
    def change(state: State) -> State:
        pool = state.pool(word)
        wanted = _devices(to, state.owner(pool)) - {state.owner(pool)}
        has = state.access[pool]
        _check_capable(state.owner(pool), wanted - has, force=force)
        return state if dry_run else state.given(pool, wanted if only else has | wanted)

    return change


def revoke(word: str, devices: Sequence[str], *, dry_run: bool = False) -> Change:
    def change(state: State) -> State:
        pool = state.pool(word)
        unwanted = _devices(devices, state.owner(pool))
        if state.owner(pool) in unwanted:
            raise Refused("owner-access")
        return state if dry_run else state.given(pool, state.access[pool] - unwanted)

    return change


def create(location: str, name: str | None, to: Sequence[str], automatic: Callable[[], str]) -> Change:
    """`automatic`: the name that one without a name got."""

    def change(state: State) -> State:
        if name in ("host", "9"):
            raise Refused("bad-name")
        if name in state.access:
            raise Refused("name-taken")
        owner = _device(location) if location.isdigit() else None
        if owner is not None and owner not in WITH_POOLS:
            raise Refused("no-pool-support")
        granted = _devices(to, owner) - {owner}
        _check_capable(owner, granted)
        made = name or automatic()
        return replace(state, place={**state.place, made: location}, access={**state.access, made: frozenset(granted)})

    return change


def set_current(word: str) -> Change:
    def change(state: State) -> State:
        pool = state.pool(word)
        owner = state.owner(pool)
        if owner is None:
            raise Refused("host-pool")
        return replace(state, current={**state.current, owner: pool})

    return change


def destroy(words: Sequence[str]) -> Change:
    def change(state: State) -> State:
        pools = [state.pool(word) for word in words]
        if any(pool.startswith("default:") for pool in pools):
            raise Refused("default-pool")
        return without(state, pools)

    return change


def without(state: State, pools: Sequence[str]) -> State:
    """The state when these pools are gone."""
    return State(
        place={pool: place for pool, place in state.place.items() if pool not in pools},
        access={pool: access for pool, access in state.access.items() if pool not in pools},
        current={device: f"default:{device}" if pool in pools else pool for device, pool in state.current.items()},
    )


def look(words: Sequence[str]) -> Change:
    """A question about these pools."""

    def change(state: State) -> State:
        for word in words:
            state.pool(word)
        return state

    return change


# --- what the matrix shows of it ---

Matrix = dict[str, dict[str, Any]]


def matrix(state: State, words: Sequence[str] = ()) -> Matrix:
    """A row for each of these pools, or for every pool."""
    return {pool: _row(state, pool) for pool in ([state.pool(word) for word in words] or state.access)}


def _row(state: State, pool: str) -> dict[str, Any]:
    owner = state.owner(pool)
    has_pools = owner != 3
    row: dict[str, Any] = {
        str(device): ("rw" if device == owner or device in state.access[pool] else "none")
        if has_pools and device in WITH_POOLS
        else None
        for device in DEVICES
    }
    roles = {"default" if pool.startswith("default:") else "created"}
    if owner is not None and state.current.get(owner) == pool:
        roles.add("current")
    row["host"] = ("rw" if owner is None else "none") if has_pools else None
    return row | {"on": state.place[pool], "roles": roles}


def shown(document: dict[str, Any]) -> Matrix:
    """The same of the matrix in an answer. The device that a pool is on, and no other, is its owner."""
    rows: Matrix = {}
    for row in document["data"]["rows"]:
        pool = row["pool"]
        cells = {str(cell["device"]): cell["access"] for cell in row["cells"]}
        assert pool["name"] not in rows, "a pool has two rows"
        assert [cell["device"] for cell in row["cells"] if cell["owner"]] == (
            [pool["owner"]] if pool["owner"] is not None else []
        )
        rows[pool["name"]] = cells | {
            "host": row["host"]["access"],
            "on": pool["location"],
            "roles": set(pool["roles"]),
        }
    return rows


def is_automatic(name: str) -> bool:
    return re.fullmatch(r"pool-[0-9]+", name) is not None
