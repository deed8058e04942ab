"""Puts the man pages into the wheel, where `pip install` gives them to `man`; see docs/decisions/0012-click-man.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManPages(BuildHookInterface):
    """Writes them below build/ before the wheel is packed; an editable installation has none."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling."""
        if version == "editable":
            return
        sys.path[:0] = [self.root, str(Path(self.root, "scripts"))]
        from pages import man_pages

        directory = Path(self.root, "build", "man1")
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in man_pages().items():
            (directory / name).write_text(text, encoding="utf-8")
            build_data["shared_data"][str(directory / name)] = f"share/man/man1/{name}"
