"""Whether a host can answer a client: the same version, the same messages, the same machine."""

from __future__ import annotations

from mempool_cli import __version__
from mempool_cli.driver import DriverSource
from mempool_cli.errors import MempoolError
from mempool_cli.model import Notice
from mempool_cli.session import protocol
from mempool_cli.session.protocol import HostState


def check_same(state: HostState, source: DriverSource) -> None:
    """MempoolError `other-version` or `other-driver` when this host cannot answer for this client and source."""
    if (state.version, state.messages) != (__version__, protocol.messages_digest()):
        raise other_version(f"{state.kind} {state.name}", state.version, __version__)
    for notice in other_machine(state, source):
        hint = "" if state.sim == source.sim else f"`--sim {state.sim}`, "
        raise MempoolError(
            notice.code,
            notice.message,
            hint=f"{hint}another name with `--session NAME`, or `mempool session stop` first",
        )


def other_machine(state: HostState, source: DriverSource) -> tuple[Notice, ...]:
    """`other-driver`, for a command that a host of any machine can answer; empty when it is of this source."""
    if state.driver == source.digest:
        return ()
    other = f"{state.sim!r}, not {source.sim!r}"
    if state.sim == source.sim:
        other = f"another machine under the same SPEC {state.sim!r}: another file, or this one before a change"
    return (Notice("other-driver", f"{state.kind} {state.name} simulates {other}"),)


def other_version(host: str, host_version: str, client_version: str) -> MempoolError:
    """The error for a host and a client that do not know each other's messages."""
    message = f"{host} runs mempool {host_version}, this command is mempool {client_version}"
    if host_version == client_version:
        message = f"{host} and this command are both mempool {host_version}, from different source"
    return MempoolError(
        "other-version", message, hint="`mempool session stop` ends it, and its pools; any version can do that"
    )
