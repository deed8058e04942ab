"""Which driver answered and whose pools an answer is about: part of every answer."""

from __future__ import annotations

from mempool_cli.model import (
    AccessChange,
    AccessMatrix,
    Answer,
    CurrentPool,
    DeviceList,
    PoolDetail,
    PoolList,
    PoolsDestroyed,
    Where,
)
from mempool_cli.render.words import moment

FRESH = (
    "no session was asked: in a new process pools start ungranted\na program's pools are its own: see `mempool exec`"
)


def simulated(answer: Answer) -> str | None:
    """The label of an answer that no hardware gave, or None."""
    if answer.driver is None or answer.driver.kind != "sim":
        return None
    machine = "machine" if answer.driver.sim is None else f"machine {answer.driver.sim}"
    return f"SIMULATED {machine}: no hardware was asked"


def scope(answer: Answer) -> str | None:
    """Whose pools the result is about, a line or two, or None where that is no question (sessions, devices)."""
    where, result = answer.where, answer.result
    if where is None:
        return None
    if answer.changed:
        return _affects(where, held=not isinstance(result, PoolsDestroyed))
    if where.kind != "local":
        asked = isinstance(result, AccessMatrix | PoolDetail | PoolList | AccessChange | CurrentPool | DeviceList)
        return f"as {_host(where)} sees it; other processes have pools of their own" if asked else None
    return FRESH if isinstance(result, AccessMatrix | PoolDetail | PoolList | AccessChange | CurrentPool) else None


def _affects(where: Where, *, held: bool) -> str:
    if where.kind == "local":
        return f"affected only this process (pid {where.pid}), which ends now with all its pools; no other process"
    until = f", held until {moment(where.expires)} unless used" if held and where.expires else ""
    return f"affects only {_host(where)}{until}; no other process"


def _host(where: Where) -> str:
    return f"{where.kind} {where.name or '-'} (pid {where.pid})"
