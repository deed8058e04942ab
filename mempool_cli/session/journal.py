"""What a host holds, on disk: so that its death can be told, with what was lost and how."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from mempool_cli.errors import MempoolError
from mempool_cli.names import NAME
from mempool_cli.session import protocol
from mempool_cli.session.directory import Place
from mempool_cli.session.protocol import HostState

NO_TRACE = "no trace: killed, or out of memory"

_FATAL = "Fatal Python error: "


def write(place: Place, state: HostState) -> None:
    """Puts `state` in place of the last one, whole or not at all. Never holds access: that is asked, not kept."""
    place.write(place.journal, protocol.encode(state))


def read(path: Path) -> HostState | None:
    """The journal; None when there is none, or none that this version can read, or that names no host."""
    try:
        state = protocol.decode_state(path.read_bytes())
    except (FileNotFoundError, protocol.BadMessageError):
        return None
    return state if NAME.fullmatch(state.name) else None


def death(place: Place) -> MempoolError | None:
    """`session-died` when a session's journal is there, else None. The caller holds the lock, so no host lives.

    Clears what the dead host left; its last words stay in the crash file. A program that has ended, in whatever way,
    is no loss of ours to tell.
    """
    if not place.journal.exists():
        return None
    state = read(place.journal)
    if state and state.kind == "program":
        place.clear()
        return None
    words = last_words(place.log)
    with suppress(FileNotFoundError):
        if words:
            place.log.replace(place.crash)
        else:
            place.log.unlink()
    place.clear()
    who = f"session {place.name} (pid {state.pid})" if state else f"session {place.name}"
    hint = "the next command starts afresh" + (f"; its last words are in {place.crash}" if words else "")
    return MempoolError("session-died", f"{who} died: {words or NO_TRACE}; {_lost(state)}", hint=hint)


def last_words(log: Path) -> str | None:
    """How a process ended, by its log: the fatal signal if a handler wrote it, else the last line; None if empty."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except FileNotFoundError:
        return None
    fatal = [line.removeprefix(_FATAL) for line in lines if line.startswith(_FATAL)]
    told = fatal or lines
    return told[-1] if told else None


def _lost(state: HostState | None) -> str:
    if state is None:
        return "what it held is not known: its journal cannot be read"
    if not state.pools:
        return "it had created no pools; every grant that it made is lost"
    return f"lost: its pools {', '.join(state.pools)}, and every grant that it made"
