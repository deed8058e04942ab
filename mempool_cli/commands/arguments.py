"""What the arguments ask for, also when click cannot read them: an error has to come in the right format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import click

from mempool_cli.commands.settings import global_options


class Asked(NamedTuple):
    """The subcommand as the envelope names it, empty when there is none, and how to show a result."""

    command: str
    format: Literal["table", "json"]
    color: Literal["auto", "always", "never"]


def asked(root: click.Command, arguments: Sequence[str]) -> Asked:
    """Reads the words that are ours: not those of a program that `session run` is given."""
    names: list[str] = []
    given = {"--format": os.environ.get("MEMPOOL_FORMAT", ""), "--color": os.environ.get("MEMPOOL_COLOR", "")}
    found = root
    for option, word in _pairs(arguments):
        if option:
            given[option] = word
        elif isinstance(found, click.Group):
            command = found.get_command(click.Context(found), word)
            if command is not None:
                names.append(word)
                found = command
        elif not found.context_settings.get("allow_interspersed_args", True):
            break
    color = given["--color"]
    return Asked(
        command=" ".join(names),
        format="json" if given["--format"] == "json" else "table",
        color="always" if color == "always" else "never" if color == "never" else "auto",
    )


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each global option with its value, and each word that is no option with an empty one, up to `--`."""
    valued = {name for option in global_options() if not option.is_flag for name in option.opts}
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if word == "--":
            return
        if option in valued:
            yield option, value if equals else next(words, "")
        elif not word.startswith("-"):
            yield "", word
