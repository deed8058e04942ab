"""Command lines that are read as ever and then not run: do the commands that a page shows exist?"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from mempool_cli.__main__ import run
from mempool_cli.commands import cli
from mempool_cli.commands.common import MempoolCommand

_OPERATORS = {"|", ">", ">>", "<", "&&", "||", ";", "&", "2>", "2>&1"}


def reads(line: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a line as a shell gets it is a command line of ours; what is wrong with it is on stderr."""
    words = shlex.split(line, comments=True)
    assert words.pop(0) == "mempool"
    end = next((position for position, word in enumerate(words) if word in _OPERATORS), len(words))
    with monkeypatch.context() as patch:
        patch.setattr(MempoolCommand, "invoke", lambda self, ctx: None)
        return run(words[:end]) == 0


def every_command() -> Iterator[tuple[str, ...]]:
    """The path of each command and group, the program itself first."""
    return _below(cli, click.Context(cli), ())


def _below(command: click.Command, ctx: click.Context, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None, f"{name} is listed and does not exist"
            yield from _below(found, ctx, (*path, name))
