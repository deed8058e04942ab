"""What changed between two snapshots: a line a change, devices by ordinal and the beginning of their UUID."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from mempool_cli.model import Change, Difference
from mempool_cli.render.layout import Part, line

_UUID_START = len("GPU-12345678")
_CAPABILITY = {("yes", "no"): ("lost", "can no longer reach"), ("no", "yes"): ("gained", "can now reach")}
_WORDS = {"device-removed": "is gone", "device-added": "is new", "device-moved": "moved", "device-changed": "changed"}
_STYLES = {"device-removed": "bold red", "lost": "bold red", "gained": "green", "device-added": "green"}

Name = Callable[[str | None], str]


def difference(result: Difference) -> list[Text]:
    """The changes, or that there is none."""
    if not result.changes:
        return [line(f"nothing changed since {result.old}")]
    ordinals = {device.uuid: device.ordinal for device in result.devices}

    def name(uuid: str | None) -> str:
        if uuid is None:
            return "the host"
        return f"device {ordinals.get(uuid, '?')} ({uuid[:_UUID_START]})"

    return [line(*_change(change, name)) for change in result.changes]


def _change(change: Change, name: Name) -> list[Part]:
    values = "; ".join(f"{value.name}: {value.old or '-'} -> {value.new or '-'}" for value in change.values)
    if change.kind == "capability":
        return _capability(change, name)
    if change.kind == "access":
        pool = f"the default pool of {name(change.owner)}"
        return [("access", "bold magenta"), f" of {name(change.device)} to {pool}: {_arrow(change)}"]
    if change.kind in _WORDS:
        fate = (_WORDS[change.kind], _STYLES.get(change.kind, "bold magenta"))
        return [f"{name(change.device)} ", fate, f": {values}" if values else ""]
    return [(change.kind, "bold magenta"), f": {values}"]


def _capability(change: Change, name: Name) -> list[Part]:
    value = change.values[0]
    word, fate = _CAPABILITY.get((value.old or "", value.new or ""), ("changed", f"reaches ({_arrow(change)})"))
    back = f", and {name(change.owner)} {fate} {name(change.device)}" if change.both_ways else ""
    style = _STYLES.get(word, "bold magenta")
    return [(f"capability {word}", style), f": {name(change.device)} {fate} {name(change.owner)}{back}"]


def _arrow(change: Change) -> str:
    value = change.values[0]
    return f"{value.old or '-'} -> {value.new or '-'}"
