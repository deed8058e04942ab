"""The files of a machine, through one object: tests give it a directory of captured files as its root."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


class Sources:
    """Reads only, and never raises: what cannot be read is None, and what cannot be listed has no names.

    Paths are absolute as the machine knows them, and are looked up under `root`.
    """

    def __init__(self, root: Path | str = "/", environment: Mapping[str, str] | None = None) -> None:
        self.root = Path(root)
        self.environment: Mapping[str, str] = dict(os.environ if environment is None else environment)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """The content without white space around it."""
        try:
            return self._at(path).read_bytes().decode("utf-8", "replace").strip()
        except (OSError, ValueError):
            return None

    def head(self, path: str, size: int) -> bytes | None:
        """The first bytes."""
        try:
            with self._at(path).open("rb") as file:
                return file.read(size)
        except (OSError, ValueError):
            return None

    def names(self, path: str) -> tuple[str, ...]:
        """What is in a directory, sorted."""
        try:
            return tuple(sorted(os.listdir(self._at(path))))  # noqa: PTH208 - names are all that is wanted
        except (OSError, ValueError):
            return ()

    def link(self, path: str) -> str | None:
        """The last part of what a symbolic link names."""
        try:
            return os.readlink(self._at(path)).rpartition("/")[2]  # noqa: PTH115 - the target as it is written
        except (OSError, ValueError):
            return None

    def exists(self, path: str) -> bool:
        """Whether there is anything by this name."""
        try:
            return self._at(path).exists()
        except (OSError, ValueError):
            return False

    def usable(self, path: str) -> bool:
        """Whether this user may read and write it."""
        return os.access(self._at(path), os.R_OK | os.W_OK)

    def processes(self) -> tuple[str, ...]:
        """The names of the processes that this user can see, each at most 15 characters long."""
        found = (self.text(f"/proc/{name}/comm") for name in self.names("/proc") if name.isdigit())
        return tuple(name for name in found if name)
