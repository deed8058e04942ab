"""`mempool exec`: a program started so that its Python interpreters take an agent up."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from mempool_cli.agent.children import path_with_agent
from mempool_cli.agent.orders import Orders, without_orders
from mempool_cli.errors import MempoolError
from mempool_cli.model import Event
from mempool_cli.requests import OnEvent
from mempool_cli.session import directory, foreground, lifecycle
from mempool_cli.session.files import RUNTIME_DIR
from mempool_cli.session.lock import Lock, held

_SIGN_UP = "exec-{}.agents"


def run_with_agent(
    command: Sequence[str],
    name: str,
    on_event: OnEvent,
    *,
    grants: Sequence[str] = (),
    matrix_file: Path | None = None,
    matrix_format: Literal["table", "json"] = "table",
) -> int:
    """Runs `command`, in which agents are reached under `name` or `name.PID`; its status, 128 + signal.

    As of a shell, 127 when the command is not found, 126 when it cannot be run; an event says why, and at the end
    that no interpreter took an agent up, or that the matrix could not be written. `grants`: `OWNER:DEV,DEV...`.
    Signals are passed on. MempoolError `bad-name`, `runtime-directory`, or `output` when there can be no
    `matrix_file`, before anything runs. Main thread only.
    """
    where = directory.made_place(name, simulated=False).directory
    file = _writable(matrix_file) if matrix_file else ""
    _clear_old(where)
    sign_up = where / _SIGN_UP.format(os.getpid())
    lock = Lock.take(sign_up)
    if lock is None:
        raise MempoolError("runtime-directory", f"{sign_up} is in use, by a process of the same number elsewhere")
    try:
        orders = Orders(name, sign_up=str(sign_up), grants=tuple(grants), matrix_file=file, matrix_format=matrix_format)
        ended = foreground.run(command, _environment(orders), on_event)
        if ended.ran:
            lifecycle.clear_ended(where)
            for line in _remarks(orders, sign_up):
                on_event(Event("status", f"mempool: {line}"))
        return ended.status
    finally:
        lock.release()


def _environment(orders: Orders) -> Mapping[str, str]:
    path = path_with_agent(os.environ.get("PYTHONPATH"))
    environment = {**without_orders(os.environ), **orders.variables(), "PYTHONPATH": path}
    if environment.get(RUNTIME_DIR):
        environment[RUNTIME_DIR] = str(directory.chosen_directory())
    return environment


def _remarks(orders: Orders, sign_up: Path) -> list[str]:
    """What is to be said at the end, by what the agents reported; nothing when that was lost."""
    try:
        lines = sign_up.read_text(errors="replace").splitlines()
    except OSError:
        return []
    if not any(line.startswith("agent ") for line in lines):
        if "failed" in lines:
            return []  # said by the interpreter, with the reason
        return [
            "no agent: no Python interpreter took it up (the program is not Python, or runs with -S, -I or -E);"
            " pools could not be seen or set"
        ]
    if orders.matrix_file and "matrix" not in lines:
        return [f"{orders.matrix_file} was not written: the program ended by a signal or os._exit"]
    return []


def _writable(file: Path) -> str:
    """The absolute path, if a file can be put there; the one that is there stays until there is another."""
    path = file.absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        why = "is a directory" if path.is_dir() else "cannot be written in its directory"
        raise MempoolError("output", f"{file} {why}", hint="nothing was run")
    return str(path)


def _clear_old(where: Path) -> None:
    """Removes what killed `exec`s left."""
    for path in where.glob(_SIGN_UP.format("*")):
        if not held(path):
            path.unlink(missing_ok=True)
