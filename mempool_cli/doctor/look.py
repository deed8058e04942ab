"""What CUDA says of the machine, asked in a process of its own: the command loads no driver and makes no context."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from mempool_cli.child import Announce, run_trial
from mempool_cli.devices import list_details
from mempool_cli.driver import DriverSource
from mempool_cli.driver.identity import describe, loaded_libcuda
from mempool_cli.driver.port import DeviceAttribute, Driver, P2PAttribute
from mempool_cli.driver.start import initialize
from mempool_cli.errors import DriverError, MempoolError, Problem
from mempool_cli.model import DeviceDetail, DriverInfo, Libcuda, Row
from mempool_cli.probe import default_target, read_matrix
from mempool_cli.survey import sendable

_SECONDS = 60.0


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """What CUDA says of an ordered pair, by ordinals; None where it does not answer."""

    accessor: int
    owner: int
    capable: bool | None
    native_atomics: bool | None
    performance_rank: int | None


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What CUDA answered, as far as it came, and `failure`: why it came no further.

    `libcuda` is what was loaded, also where `driver` is None since it did not start. `compute_modes` and `integrated`
    go with `devices`; None: not answered. `links` and `access`, the default pools of a new process, only where asked
    for.
    """

    bindings: str | None = None
    libcuda: Libcuda | None = None
    driver: DriverInfo | None = None
    devices: tuple[DeviceDetail, ...] = ()
    compute_modes: tuple[int | None, ...] = ()
    integrated: tuple[bool | None, ...] = ()
    links: tuple[Link, ...] = ()
    access: tuple[Row, ...] = ()
    failure: Problem | None = None


def look(source: DriverSource, *, pairs: bool = False, limit: float = _SECONDS) -> Look:
    """What CUDA says; with `pairs` also of each ordered pair. A driver that crashes or hangs is a `failure`."""
    payload = msgspec.json.encode({"source": source.encode().decode(), "pairs": pairs})
    outcome = run_trial("mempool_cli.doctor.look:trial", payload, limit=limit, apart=False)
    if outcome.result is None:
        hint = "the kernel log (dmesg) may have NVRM or Xid lines; a process stuck in the driver needs a reboot"
        return Look(
            failure=Problem(code="trial-failed", message=f"the driver does not answer: {outcome.end}", hint=hint)
        )
    return msgspec.json.decode(outcome.result, type=Look)


def trial(payload: bytes, announce: Announce) -> bytes:
    """-> Look, in the child."""
    order = msgspec.json.decode(payload)
    source = DriverSource.decode(order["source"].encode())
    found: dict[str, Any] = {}
    try:
        _ask(source, found, announce, pairs=order["pairs"])
    except (MempoolError, DriverError) as error:
        found["failure"] = error.problem
    if source.sim is None:
        found["libcuda"] = loaded_libcuda()
    return msgspec.json.encode(Look(**found))


def _ask(source: DriverSource, found: dict[str, Any], announce: Announce, *, pairs: bool) -> None:
    driver = source.open()
    if source.sim is None:
        real: Any = driver
        found["bindings"] = real.bindings
    announce("cuDriverGetVersion")
    with suppress(DriverError):  # the toolkit's stub answers nothing: cuInit has the same code, and its meaning
        found["driver"] = describe(driver, source.sim)
    announce("cuInit")
    initialize(driver, simulated=source.sim is not None)
    announce("a question about a device")
    devices = found["devices"] = sendable(list_details(driver))
    found["compute_modes"] = tuple(_attribute(driver, DeviceAttribute.COMPUTE_MODE, d.ordinal) for d in devices)
    integrated = [_attribute(driver, DeviceAttribute.INTEGRATED, device.ordinal) for device in devices]
    found["integrated"] = tuple(None if value is None else bool(value) for value in integrated)
    if pairs:
        announce("a question about a pair of devices")
        ordinals = range(len(devices))
        found["links"] = tuple(_link(driver, a, b) for a in ordinals for b in ordinals if a != b)
        announce("a question about a pool")
        targets = [default_target(driver, device) for device in devices]
        found["access"] = read_matrix(driver, targets, devices).rows


def _attribute(driver: Driver, which: DeviceAttribute, device: int) -> int | None:
    return _answer(lambda: driver.device_get_attribute(which, device))


def _link(driver: Driver, accessor: int, owner: int) -> Link:
    def attribute(which: P2PAttribute) -> int | None:
        return _answer(lambda: driver.device_get_p2p_attribute(which, accessor, owner))

    capable = _answer(lambda: driver.device_can_access_peer(accessor, owner))
    atomics = attribute(P2PAttribute.NATIVE_ATOMIC_SUPPORTED)
    return Link(
        accessor=accessor,
        owner=owner,
        capable=None if capable is None else bool(capable),
        native_atomics=None if atomics is None else bool(atomics),
        performance_rank=attribute(P2PAttribute.PERFORMANCE_RANK),
    )


def _answer(ask: Callable[[], int]) -> int | None:
    """What the driver answers; None when it does not, which must not hide the rest."""
    try:
        return ask()
    except DriverError:
        return None
