"""LOCATION, the place of a pool: a device, `host`, or `numa:NODE`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mempool_cli.devices import is_device_word, resolve_device
from mempool_cli.driver.port import Location, LocationType, device_location
from mempool_cli.errors import MempoolError
from mempool_cli.model import Device


def parse_location(word: str, devices: Sequence[Device]) -> Location:
    """The location that `word` names. MempoolError `unknown-device` or `usage`."""
    if word == "host":
        return Location(LocationType.HOST, 0)
    if word.startswith("numa:"):
        node = word.removeprefix("numa:")
        if not re.fullmatch(r"[0-9]{1,6}", node):
            raise MempoolError("usage", f"{word!r} is no NUMA node", hint="numa:0 is the first one")
        return Location(LocationType.HOST_NUMA, int(node))
    if not is_device_word(word):
        raise MempoolError(
            "usage", f"{word!r} is no place for a pool", hint="a device (0, GPU-8fc8, 0000:19:00.0), host, or numa:0"
        )
    return device_location(resolve_device(word, devices))


def spell_location(location: Location) -> str:
    """LOCATION as `mempool create` takes it."""
    if location.type == LocationType.DEVICE:
        return str(location.id)
    return "host" if location.type == LocationType.HOST else f"numa:{location.id}"


def describe_location(location: Location) -> str:
    """`device 0`, `host`, `numa:0`."""
    return f"{'device ' if location.type == LocationType.DEVICE else ''}{spell_location(location)}"


def owner_of(location: Location) -> int | None:
    """The device that owns a pool there; None for the host."""
    return location.id if location.type == LocationType.DEVICE else None
