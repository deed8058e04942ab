"""One cell as a symbol of the matrix, and one row of cells as a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from mempool_cli.model import Cell
from mempool_cli.wording import ranges

LEGEND = {
    "own": "the pool is on this device",
    "own:": "the pool is on this device, yet the driver reports only the access that follows",
    "RW": "may read and write",
    "R": "may only read",
    "-": "no access; a device could be granted it",
    "np": "no access; this device cannot reach the pool (not peer-capable)",
    "n/s": "no pool support, not asked",
    "0xN?": "access flags that are not known here",
    "err": "the driver did not answer",
    "!": "contradiction: granted, but this device cannot reach the pool",
    "~": "the driver did not say whether this device can reach the pool",
}

STYLES = {
    "own": "bold",
    "own:": "bold red",
    "RW": "green",
    "R": "cyan",
    "0xN?": "magenta",
    "err": "bold red",
}

_GRANTED = {"rw": "RW", "r": "R", "none": "-", "unknown": "0xN?"}

_PHRASES = {
    "own": "owner",
    "RW": "RW",
    "R": "R",
    "-": "none",
    "np": "not capable",
    "n/s": "no pool support",
    "err": "unreadable",
}


def kind(cell: Cell) -> str:
    """The key of LEGEND that explains this cell, apart from its mark."""
    if cell.access is None:
        return "err" if cell.error else "n/s"
    if cell.owner:
        return "own" if cell.access == "rw" else "own:"
    if cell.access == "none" and cell.capable is False:
        return "np"
    return _GRANTED[cell.access]


def symbol(cell: Cell) -> str:
    """The cell as the matrix shows it: `RW`, `own`, `0x7?`, `RW!`."""
    key = kind(cell)
    if key == "own:":
        key += _access(cell)
    elif key == "0xN?":
        key = _access(cell)
    return f"{key}{mark(cell)}"


def mark(cell: Cell) -> str:
    """What follows the symbol of a cell with something odd about capability: a key of LEGEND, or nothing."""
    if cell.contradiction:
        return "!"
    return "~" if cell.access is not None and cell.error else ""


def style(cell: Cell) -> str:
    """The colour of the cell's symbol."""
    return "bold red" if cell.contradiction else STYLES.get(kind(cell), "")


def phrase(cell: Cell) -> str:
    """The cell in words: `none`, `not capable`, `RW but not capable`, `unknown (0x7)`."""
    key = kind(cell)
    own = key == "own:"
    words = f"owner with {_words(_granted(cell), cell)}" if own else _words(key, cell)
    return words + {"!": " but not capable", "~": " (capability not known)", "": ""}[mark(cell)]


def sentence(cells: Sequence[Cell], host: Cell | None = None) -> str:
    """A whole row: `owner 0; RW 1-2; none 3`. The host is named only where it has access or has an error."""
    if cells and all(kind(cell) == "n/s" for cell in cells):
        return _PHRASES["n/s"]
    order = list(LEGEND)
    groups: dict[tuple[int, str], list[int]] = {}
    for cell in cells:
        if cell.device is not None:
            groups.setdefault((order.index(kind(cell)), phrase(cell)), []).append(cell.device)
    parts = [f"{words} {ranges(devices)}" for (_, words), devices in sorted(groups.items())]
    if host is not None and kind(host) not in ("-", "np", "n/s"):
        parts.append(f"host {phrase(host)}")
    return "; ".join(parts) or "no devices"


def _granted(cell: Cell) -> str:
    return _GRANTED[cell.access or "none"]


def _access(cell: Cell) -> str:
    return f"{_flags(cell)}?" if cell.access == "unknown" else _granted(cell)


def _words(key: str, cell: Cell) -> str:
    return _PHRASES.get(key) or f"unknown ({_flags(cell)})"


def _flags(cell: Cell) -> str:
    return f"{cell.flags or 0:#x}"
