"""The machine, as a process of its own sees it: the command itself never loads a driver that may hang or crash."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import structs

from mempool_cli.child import Announce, run_trial
from mempool_cli.devices import list_details
from mempool_cli.driver import DriverSource
from mempool_cli.driver.identity import describe
from mempool_cli.driver.start import initialize
from mempool_cli.errors import DriverError, MempoolError, Problem
from mempool_cli.model import DeviceDetail, DriverInfo
from mempool_cli.utf8 import utf8

_SECONDS = 60.0


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, or why it cannot be used."""

    driver: DriverInfo | None = None
    devices: tuple[DeviceDetail, ...] = ()
    failure: Problem | None = None


def look(source: DriverSource) -> Survey:
    """Which driver and devices there are, or why not; nothing is raised."""
    outcome = run_trial("mempool_cli.survey:survey", source.encode(), limit=_SECONDS)
    if outcome.result is None:
        return Survey(failure=Problem(code="trial-failed", message=f"the driver does not answer: {outcome.end}"))
    return msgspec.json.decode(outcome.result, type=Survey)


def survey(source: bytes, announce: Announce) -> bytes:
    """-> Survey, in the child."""
    place = DriverSource.decode(source)
    info: DriverInfo | None = None
    try:
        driver = place.open()
        announce("cuDriverGetVersion")
        info = describe(driver, place.sim)
        announce("cuInit")
        initialize(driver, simulated=place.sim is not None)
        announce("a question about a device")
        found = Survey(driver=info, devices=sendable(list_details(driver)))
    except (DriverError, MempoolError) as error:
        found = Survey(driver=info, failure=error.problem)
    return msgspec.json.encode(found)


def sendable(devices: Iterable[DeviceDetail]) -> tuple[DeviceDetail, ...]:
    """The same, where bytes of a name that are no UTF-8 have been replaced: a child could not tell them."""
    return tuple(structs.replace(device, name=utf8(device.name)) for device in devices)
