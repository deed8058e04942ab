"""Writes the pictures of README.md into a directory: `python scripts/pictures.py docs/pictures`.

A real run of the tool, on a simulated machine in this process: the same bytes each time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mempool_cli.driver import driver_source
from mempool_cli.model import Where
from mempool_cli.operations import LocalRunner
from mempool_cli.render.layout import line
from mempool_cli.render.picture import DARK, LIGHT, svg
from mempool_cli.render.text import result_lines
from mempool_cli.requests import AnyRequest, Create, Grant, Probe

COMMAND = "mempool --sim pcie-4 probe --matrix"
BEFORE: tuple[AnyRequest, ...] = (Create(location="2", name="train", to=("3",)), Grant(pool="0", to=("1",)))


def pictures() -> dict[str, str]:
    """The content of each picture by its file name."""
    where = Where(kind="session", pid=4242, name="default")
    runner = LocalRunner(driver_source("pcie-4"), lambda: where)
    for request in BEFORE:
        assert runner.run(request, print).problem is None
    answer = runner.run(Probe(), print)
    lines = [line((f"$ {COMMAND}", "bold"))]
    lines += result_lines(answer, as_matrix=True, quiet=False, verbose=False, width=None)
    return {f"matrix-{name}.svg": svg(lines, "mempool", theme) for name, theme in (("light", LIGHT), ("dark", DARK))}


if __name__ == "__main__":
    for name, content in pictures().items():
        Path(sys.argv[1], name).write_text(content, encoding="utf-8")
