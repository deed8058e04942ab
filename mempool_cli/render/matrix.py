"""The access matrix: a row a pool, a column a device, and below it what the symbols and ordinals mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from mempool_cli.model import AccessMatrix, Device, Row
from mempool_cli.render.cells import LEGEND, STYLES, kind, mark, style, symbol
from mempool_cli.render.layout import Part, grid, line
from mempool_cli.render.words import roles


def matrix(result: AccessMatrix, width: int | None) -> list[Text]:
    """The matrix in blocks of at most `width` columns (None: in one), its legend, and the devices."""
    if not result.rows:
        return [line("no pools")]
    head = ["pool", "kind", "on", "host", *(str(device.ordinal) for device in result.devices)]
    lines = grid(head, [_cells(row) for row in result.rows], width=width)
    lines += [line(), *grid(None, _legend(result.rows))]
    if result.devices:
        lines += [line(), *device_legend(result.devices, width)]
    return lines


def device_legend(devices: Iterable[Device], width: int | None) -> list[Text]:
    """Which card each ordinal is."""
    rows = [(str(device.ordinal), device.name, device.pci_bus_id, device.uuid) for device in devices]
    return grid(("device", "name", "bus id", "uuid"), rows, width=width)


def _cells(row: Row) -> list[Part]:
    shown = [(symbol(cell), style(cell)) for cell in (row.host, *row.cells)]
    return [row.pool.name, roles(row.pool), row.pool.location, *shown]


def _legend(rows: Sequence[Row]) -> list[tuple[Part, Part]]:
    """Only the symbols that occur, in the order of LEGEND."""
    cells = [cell for row in rows for cell in (row.host, *row.cells)]
    seen = {key(cell) for cell in cells for key in (kind, mark)}
    return [((key, STYLES.get(key, "")), words) for key, words in LEGEND.items() if key in seen]
