"""Hosts: which run, what one holds and blocks, and how it ended."""

from __future__ import annotations

from rich.text import Text

from mempool_cli.model import Session, SessionList, SessionStatus, SessionStopped
from mempool_cli.render.layout import grid, line
from mempool_cli.render.words import moment
from mempool_cli.wording import idle


def sessions(result: SessionList, width: int | None) -> list[Text]:
    """A line a host."""
    if not result.sessions:
        return [line("no session runs")]
    head = ("name", "kind", "pid", "driver", "started", "ends", "pools")
    rows = [
        (
            entry.name,
            entry.kind,
            str(entry.pid),
            _driver(entry),
            moment(entry.started),
            _ends(entry),
            ", ".join(entry.pools) or "-",
        )
        for entry in result.sessions
    ]
    return grid(head, rows, width=width)


def status(result: SessionStatus) -> list[Text]:
    """One host: what it is, what it holds, what it blocks, when it ends."""
    entry = result.session
    verb = "started" if result.started_now else "runs"
    facts = [
        ("version", entry.version),
        ("driver", _driver(entry)),
        ("started", moment(entry.started)),
        ("ends", _end(entry)),
        ("pools", ", ".join(entry.pools) or "none created"),
        ("blocks", _blocks(entry)),
    ]
    return [line(f"{_who(entry)} {verb} (pid {entry.pid})"), *grid(None, facts, indent="  ")]


def stopped(result: SessionStopped) -> list[Text]:
    """How a host ended, and what became of its pools."""
    entry = result.session
    who = f"{_who(entry)} (pid {entry.pid})"
    if result.killed:
        lost = f"; it could not destroy its pools itself: {', '.join(entry.pools)}" if entry.pools else ""
        return [line(f"{who} was killed{lost}")]
    program = entry.kind == "program"
    verb, whose = ("goes on without its agent", "what mempool created in it") if program else ("stopped", "its pools")
    destroyed = [name for name in entry.pools if name not in result.not_destroyed]
    gone = f"; destroyed {whose}: {', '.join(destroyed)}" if destroyed else ""
    left = f"; not destroyed: {', '.join(result.not_destroyed)}" if result.not_destroyed else ""
    return [line(f"{who} {verb}{gone}{left}")]


def _who(entry: Session) -> str:
    return f"{'' if entry.sim is None else 'simulated '}{entry.kind} {entry.name}"


def _driver(entry: Session) -> str:
    return "hardware" if entry.sim is None else f"SIMULATED machine {entry.sim}"


def _ends(entry: Session) -> str:
    if not entry.answering:
        return "no answer"
    return moment(entry.expires) if entry.expires else "-"


def _end(entry: Session) -> str:
    if entry.kind == "program":
        return "with the program; `mempool session stop` only detaches the agent"
    if entry.expires is None:
        return "on `mempool session stop`"
    after = f", after {idle(entry.idle_timeout)}" if entry.idle_timeout else ""
    return f"{moment(entry.expires)} unless used{after}, or on `mempool session stop`"


def _blocks(entry: Session) -> str:
    if entry.kind == "program":
        return "nothing more than the program does"
    if entry.sim is not None:
        return "nothing: it holds no hardware"
    return "GPU reset and MIG changes while it runs: it holds the devices open"
