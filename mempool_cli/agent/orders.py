"""What `mempool exec` asks of the agents in its program, as environment variables."""

from __future__ import annotations

import os

from mempool_cli import __version__

# Not typing's, which takes longer to import than the rest of an agent's start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

NAME = "MEMPOOL_AGENT"
"""The variable that is there exactly when agents are to start."""

_VERSION = f"{NAME}_VERSION"
_SIGN_UP = f"{NAME}_SIGN_UP"
_GRANT = f"{NAME}_GRANT"
_MATRIX_FILE = f"{NAME}_MATRIX_FILE"
_MATRIX_FORMAT = f"{NAME}_MATRIX_FORMAT"
_IN_CHILD = f"{NAME}_IN_CHILD"

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
"""The directory whose sitecustomize starts the agent."""


class Orders:
    """One program's orders.

    `sign_up`: the file in which agents report to `exec`. `grants`: `OWNER:DEV,DEV...`, to be made once CUDA is
    initialised. `matrix_file`: where the last access matrix goes, in `matrix_format`. `in_child`: a process with an
    agent started this one.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = __version__,
        sign_up: str = "",
        grants: tuple[str, ...] = (),
        matrix_file: str = "",
        matrix_format: Literal["table", "json"] = "table",
        in_child: bool = False,
    ) -> None:
        self.name = name
        self.version = version
        self.sign_up = sign_up
        self.grants = grants
        self.matrix_file = matrix_file
        self.matrix_format: Literal["table", "json"] = matrix_format
        self.in_child = in_child

    def report(self, line: str) -> None:
        """Appends a line for `exec` to read at the end; nothing where no `exec` waits, or its file takes none."""
        if not self.sign_up:
            return
        try:
            fd = os.open(self.sign_up, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.write(fd, f"{line}\n".encode())
        except OSError:
            return
        finally:
            os.close(fd)

    def reports(self) -> list[str] | None:
        """What agents have reported so far; None where no `exec` waits, or its file is lost."""
        try:
            with open(self.sign_up, encoding="utf-8", errors="replace") as file:
                return file.read().splitlines()
        except OSError:
            return None

    def variables(self) -> dict[str, str]:
        """The orders, as `received` reads them."""
        return {
            NAME: self.name,
            _VERSION: self.version,
            _SIGN_UP: self.sign_up,
            _GRANT: " ".join(self.grants),
            _MATRIX_FILE: self.matrix_file,
            _MATRIX_FORMAT: self.matrix_format,
        }


def received(environment: Mapping[str, str] | None = None) -> Orders | None:
    """The orders in the environment, None when there are none."""
    given = os.environ if environment is None else environment
    name = given.get(NAME)
    if not name:
        return None
    return Orders(
        name,
        version=given.get(_VERSION, ""),
        sign_up=given.get(_SIGN_UP, ""),
        grants=tuple(given.get(_GRANT, "").split()),
        matrix_file=given.get(_MATRIX_FILE, ""),
        matrix_format="json" if given.get(_MATRIX_FORMAT) == "json" else "table",
        in_child=given.get(_IN_CHILD, str(os.getpid())) != str(os.getpid()),
    )


def mark_children() -> None:
    """What this process starts finds `in_child` set, but not itself when it becomes another program."""
    os.environ[_IN_CHILD] = str(os.getpid())


def without_orders(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is no part of the program."""
    return {key: value for key, value in environment.items() if not key.startswith(NAME)}
