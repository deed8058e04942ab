"""What was found: devices, pools, one pool, and permissions as one line a pool."""

from __future__ import annotations

from rich.text import Text

from mempool_cli.model import (
    AccessMatrix,
    Attribute,
    Cell,
    Device,
    DeviceDetail,
    DeviceList,
    PoolDetail,
    PoolList,
)
from mempool_cli.render.cells import phrase, sentence, style
from mempool_cli.render.layout import Part, grid, line
from mempool_cli.render.words import max_size, roles, size, threshold
from mempool_cli.wording import ranges

_MAKERS = {"driver": "the driver", "mempool": "mempool", "program": "the program, which alone may destroy it"}


def devices(result: DeviceList, width: int | None) -> list[Text]:
    """A line a device. `peers`: whose memory it can reach."""
    if not result.devices:
        return [line("no devices")]
    head = ("device", "name", "bus id", "uuid", "pools", "host pools", "peers")
    rows = [
        (
            str(device.ordinal),
            device.name,
            device.pci_bus_id,
            device.uuid,
            "yes" if device.pools_supported else "no",
            _host_pools(device),
            _peers(device),
        )
        for device in result.devices
    ]
    return grid(head, rows, width=width)


def pools(result: PoolList, width: int | None) -> list[Text]:
    """A line a pool, with its memory."""
    if not result.pools:
        return [line("no pools")]
    head = ("pool", "kind", "on", "used", "reserved", "threshold", "max size")
    rows = [
        (
            entry.pool.name,
            roles(entry.pool),
            entry.pool.location,
            size(entry.used_bytes),
            size(entry.reserved_bytes),
            threshold(entry.release_threshold),
            max_size(entry.max_size),
        )
        for entry in result.pools
    ]
    return grid(head, rows, width=width)


def access(result: AccessMatrix) -> list[Text]:
    """A line a pool: who may access it, in words."""
    if not result.rows:
        return [line("no pools")]
    rows = [(row.pool.name, roles(row.pool), row.pool.location, sentence(row.cells, row.host)) for row in result.rows]
    return grid(("pool", "kind", "on", "access"), rows)


def detail(result: PoolDetail, width: int | None) -> list[Text]:
    """One pool: its properties, its attributes by their driver names, and a line a device."""
    pool = result.pool
    facts = [
        ("pool", pool.name),
        ("kind", roles(pool)),
        ("on", pool.location if pool.owner is None else f"device {pool.owner}"),
        ("made by", _MAKERS[result.made_by]),
        ("max size", max_size(result.max_size)),
        *((attribute.name, _value(attribute)) for attribute in result.attributes),
    ]
    named: dict[int | None, Device] = {device.ordinal: device for device in result.devices}
    rows: list[tuple[Part, ...]] = []
    for cell in result.row.cells:
        device = named.get(cell.device)
        names = (device.name, device.pci_bus_id, device.uuid) if device else ("-", "-", "-")
        rows.append((str(cell.device), _access(cell), *names))
    rows.append(("host", _access(result.row.host), "-", "-", "-"))
    head = ("device", "access", "name", "bus id", "uuid")
    return [*grid(None, facts), line(), *grid(head, rows, width=width)]


def _host_pools(device: DeviceDetail) -> str:
    if device.host_pools_supported:
        return "yes"
    return "numa only" if device.host_numa_pools_supported else "no"


def _peers(device: DeviceDetail) -> str:
    unknown = f"; not known: {ranges(device.peers_unknown)}" if device.peers_unknown else ""
    return f"{ranges(device.peers)}{unknown}"


def _value(attribute: Attribute) -> str:
    if attribute.value is None:
        words = attribute.error.driver if attribute.error else None
        return str(words or "-")
    if attribute.name.startswith("reuse_"):
        return {0: "off", 1: "on"}.get(attribute.value, str(attribute.value))
    if attribute.name == "release_threshold":
        return threshold(attribute.value)
    return size(attribute.value)


def _access(cell: Cell) -> Part:
    if cell.error is None:
        return phrase(cell), style(cell)
    return str(cell.error.driver or cell.error.message), style(cell)
