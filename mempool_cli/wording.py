"""Numbers in sentences: `device 1`, `devices 0, 2-5`, `30 idle minutes`."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def ranges(ordinals: Iterable[int]) -> str:
    """`0, 2-5` for 0 2 3 4 5; `-` for none. Takes them in ascending order."""
    runs: list[tuple[int, int]] = []
    for ordinal in ordinals:
        if runs and runs[-1][1] + 1 == ordinal:
            runs[-1] = (runs[-1][0], ordinal)
        else:
            runs.append((ordinal, ordinal))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) or "-"


def device_list(ordinals: Collection[int]) -> str:
    """`device 1`, `devices 1-2`."""
    return f"device{'s' if len(ordinals) > 1 else ''} {ranges(ordinals)}"


def idle(seconds: int) -> str:
    """`30 idle minutes`."""
    count, unit = (seconds // 60, "minute") if seconds % 60 == 0 else (seconds, "second")
    return f"{count} idle {unit}{'' if count == 1 else 's'}"


def place_name(owner: int | None, location: str) -> str:
    """Where a pool is: `device 2`, `the host`, `numa:0`."""
    if owner is not None:
        return f"device {owner}"
    return "the host" if location == "host" else location
