"""`mempool exec`: a program started so that its Python interpreters take an agent up."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from mempool_cli.agent.children import path_with_agent
from mempool_cli.agent.orders import Orders, received, without_orders
from mempool_cli.agent.watch import Watcher
from mempool_cli.errors import MempoolError
from mempool_cli.model import Event
from mempool_cli.requests import OnEvent
from mempool_cli.session import directory, foreground, lifecycle
from mempool_cli.session.files import RUNTIME_DIR
from mempool_cli.session.lock import Lock, held
from mempool_cli.whole_file import unwritable

_SIGN_UP = "exec-{}.agents"
_NO_AGENT = (
    "no agent: no Python interpreter took it up (the program is not Python, or runs with -S, -I or -E);"
    " pools could not be seen or set"
)


def become_program(
    command: Sequence[str],
    name: str,
    on_event: OnEvent,
    *,
    grants: Sequence[str] = (),
    matrix_file: Path | None = None,
    matrix_format: Literal["table", "json"] = "table",
) -> int:
    """Becomes `command`, in which agents are reached under `name` or `name.PID`.

    Returns only when that cannot be: as of a shell, 127 when the command is not found, 126 when it cannot be run; an
    event says why. When the program has ended, another process tells by events that no interpreter took an agent up,
    or which order was not carried out. `grants`: `OWNER:DEV,DEV...`. MempoolError `bad-name`, `runtime-directory`,
    or `output` when there can be no `matrix_file`. Single-threaded processes only.
    """
    place = directory.made_place(name, simulated=False)
    where = place.socket.parent  # a path that is too long for a socket is told now
    file = _writable(matrix_file) if matrix_file else ""
    _clear_old(where)
    # The pid is not enough: `exec` in `exec` has the same.
    sign_up = where / _SIGN_UP.format(f"{os.getpid()}-{os.urandom(4).hex()}")
    lock = Lock.take(sign_up)
    assert lock is not None
    orders = Orders(name, sign_up=str(sign_up), grants=tuple(grants), matrix_file=file, matrix_format=matrix_format)

    def at_end() -> None:
        for line in _remarks(orders):
            on_event(Event("status", f"mempool: {line}"))
        lifecycle.clear_ended(where)
        lock.release()

    # The first process of a container would inherit it as a child, and may wait for its children.
    watcher = Watcher.start(at_end, keeps=[lock.fd]) if os.getpid() != 1 else None
    try:
        return foreground.become(command, _environment(orders), on_event)
    finally:
        if watcher:
            watcher.dismiss()
        lock.release()


def _environment(orders: Orders) -> Mapping[str, str]:
    outer = received()
    if outer:
        outer.report(f"agent of another exec, {orders.name}")
    path = path_with_agent(os.environ.get("PYTHONPATH"))
    environment = {**without_orders(os.environ), **orders.variables(), "PYTHONPATH": path}
    if environment.get(RUNTIME_DIR):
        environment[RUNTIME_DIR] = str(directory.chosen_directory())
    return environment


def _remarks(orders: Orders) -> list[str]:
    """What is to be said at the end, by what the agents reported."""
    lines = orders.reports()
    if lines is None:
        return []
    if not any(line.startswith("agent ") for line in lines):
        # When an interpreter failed to start one, it said so itself, with the reason.
        return [] if "failed" in lines else [_NO_AGENT, *_undone(orders, "no agent", "no agent")]
    early, ended = "the program has not initialised CUDA", "the program ended by a signal or os._exit"
    grants = "" if "granted" in lines else early if "too early" in lines else ended
    told = {f"matrix {orders.matrix_file}", "no matrix"}
    matrix = "" if told & set(lines) else early if "too early" in lines else ended
    return _undone(orders, grants, matrix)


def _undone(orders: Orders, grants: str, matrix: str) -> list[str]:
    """The orders that were not carried out, with the reason of each; none for an empty reason."""
    remarks = [f"--grant {order}: not done: {grants}" for order in orders.grants if grants]
    if orders.matrix_file and matrix:
        remarks.append(f"{orders.matrix_file} was not written: {matrix}")
    return remarks


def _writable(file: Path) -> str:
    """The absolute path, if a file can be put there; the one that is there stays until there is another."""
    why = unwritable(file)
    if why is None and file.exists() and not file.is_file():
        why = "it is no regular file"
    if why:
        raise MempoolError("output", f"nothing was run: the matrix cannot be written to {file}: {why}")
    return str(file.resolve())


def _clear_old(where: Path) -> None:
    """Removes what is left of programs whose watcher was killed."""
    for path in where.glob(_SIGN_UP.format("*")):
        if not held(path):
            path.unlink(missing_ok=True)
