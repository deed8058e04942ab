"""New interpreters of this Python, for what must not happen in this process."""

from __future__ import annotations

from pathlib import Path

import mempool_cli


def import_path(paths: list[str]) -> list[str]:
    """Where a new interpreter imports from: where this one does (`paths`), but not the current directory.

    Except for the package itself, wherever that is.
    """
    package = str(Path(mempool_cli.__file__).parent.parent.absolute())
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        here = ""
    found = [str(Path(here, entry)) for entry in paths if entry]
    kept = [path for path in found if path != here or path == package]
    return kept if package in kept else [*kept, package]
