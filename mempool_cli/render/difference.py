"""What changed between two snapshots: a line a change, devices by ordinal and the beginning of their UUID."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text

from mempool_cli.model import Change, Difference, ValueChange
from mempool_cli.render.layout import Part, line

_UNKNOWN = "not known"
_UUID_START = len("GPU-12345678")
_CAPABILITY: dict[tuple[str | None, str | None], tuple[str, str]] = {
    ("yes", "no"): ("lost", "can no longer reach"),
    ("no", "yes"): ("gained", "can now reach"),
}
_WORDS = {"device-removed": "is gone", "device-added": "is new", "device-moved": "moved", "device-changed": "changed"}
_STYLES = {"device-removed": "bold red", "lost": "bold red", "gained": "green", "device-added": "green"}

Name = Callable[[str | None], str]


def difference(result: Difference) -> list[Text]:
    """The changes, or that there is none."""
    if not result.changes:
        without = "" if result.devices_compared else ", of what could be compared: the devices could not"
        return [line(f"nothing changed since {result.old}{without}")]
    ordinals = {device.uuid: device.ordinal for device in result.devices}

    def name(uuid: str | None) -> str:
        if uuid is None:
            return "the host"
        return f"device {ordinals.get(uuid, '?')} ({uuid[:_UUID_START]})"

    return [line(*_change(change, name)) for change in result.changes]


def _change(change: Change, name: Name) -> list[Part]:
    if change.kind == "capability":
        return _capability(change, name)
    if change.kind == "access":
        pool = f"the default pool of {name(change.owner)}"
        return [
            ("access", "bold magenta"),
            f" of {name(change.device)} to {pool}: {_arrow(change.values[0], _UNKNOWN)}",
        ]
    values = _values(change.values)
    if change.kind in _WORDS:
        fate = (_WORDS[change.kind], _STYLES.get(change.kind, "bold magenta"))
        return [f"{name(change.device)} ", fate, f": {values}" if values else ""]
    return [(change.kind, "bold magenta"), f": {values}"]


def _capability(change: Change, name: Name) -> list[Part]:
    accessor, owner = name(change.device), name(change.owner)
    capable = next((value for value in change.values if value.name == "capability"), None)
    word, fate = _CAPABILITY.get((capable.old, capable.new), ("changed", "")) if capable else ("changed", "")
    if not fate:
        back = ", and the other way round" if change.both_ways else ""
        text = f"{accessor} with memory of {owner}{back}: {_values(change.values, _UNKNOWN)}"
    else:
        back = f", and {owner} {fate} {accessor}" if change.both_ways else ""
        rest = _values([value for value in change.values if value is not capable], _UNKNOWN)
        text = f"{accessor} {fate} {owner}{back}{f'; {rest}' if rest else ''}"
    return [(f"capability {word}", _STYLES.get(word, "bold magenta")), f": {text}"]


def _values(values: Sequence[ValueChange], nothing: str = "-") -> str:
    return "; ".join(f"{value.name}: {_arrow(value, nothing)}" for value in values)


def _arrow(value: ValueChange, nothing: str) -> str:
    old, new = (nothing if word is None else word or "''" for word in (value.old, value.new))
    return f"{old} -> {new}"
