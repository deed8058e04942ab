"""Commands that a page shows with their output, `    $ mempool ...`, and what they really print."""

from __future__ import annotations

import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import NamedTuple

import pytest

from mempool_cli.__main__ import run

COLUMNS = 120


class Shown(NamedTuple):
    command: str
    output: str


def shown(page: str) -> list[Shown]:
    """Each command in indented code that stands behind `$`, and the lines below it."""
    found: list[list[str]] = []
    inside = False
    for line in page.splitlines():
        if line.startswith("    $ mempool "):
            found.append([line.removeprefix("    $ ")])
        elif inside and (line.startswith("    ") or not line):
            found[-1].append(line.removeprefix("    "))
        inside = line.startswith("    $ mempool ") or (inside and (line.startswith("    ") or not line))
    return [Shown(command, "\n".join(lines).rstrip("\n")) for command, *lines in found]


def printed(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal of 120 columns is left with, without colour: stdout and stderr as they come."""
    output = StringIO()
    with monkeypatch.context() as patch, redirect_stdout(output), redirect_stderr(output):
        patch.setattr("mempool_cli.render.terminal_width", lambda stream: COLUMNS)
        run(shlex.split(command)[1:])
    bar = re.compile(r"^\d+ of \d+: .*\n", re.MULTILINE)  # a terminal has a bar instead, which goes
    return bar.sub("", output.getvalue()).rstrip("\n")
