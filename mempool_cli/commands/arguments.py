"""What the arguments ask for, also when click cannot read them: an error has to come in the right format."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from mempool_cli.commands.settings import global_options

if TYPE_CHECKING:
    from mempool_cli.errors import Problem


_OF_THE_MACHINE = re.compile("`mempool (?=devices|session list)")
_OF_THE_SESSION = re.compile("`mempool (?!--|devices|session list)")


class Asked(NamedTuple):
    """The subcommand as the envelope names it, empty when there is none, and how to show a result.

    `machine`, `session`: the options of the command line that say which it was about, each with a blank behind it.
    """

    command: str
    format: Literal["table", "json"]
    color: Literal["auto", "always", "never"]
    machine: str
    session: str

    def with_options(self, problem: Problem) -> Problem:
        """The failure, its hint naming commands that are about the same machine and session."""
        if not problem.hint or problem.code == "usage":
            return problem
        from msgspec import structs

        hint = _OF_THE_MACHINE.sub(f"`mempool {self.machine}", problem.hint)
        return structs.replace(problem, hint=_OF_THE_SESSION.sub(f"`mempool {self.machine}{self.session}", hint))


def asked(root: click.Command, arguments: Sequence[str]) -> Asked:
    """Reads the words that are ours: not those of a program that `session run` is given."""
    names: list[str] = []
    given = {"--format": os.environ.get("MEMPOOL_FORMAT", ""), "--color": os.environ.get("MEMPOOL_COLOR", "")}
    found = root
    for option, word in _pairs(arguments):
        if option:
            given[option] = word
        elif word == "--" and isinstance(found, click.Group):
            continue
        elif isinstance(found, click.Group):
            command = found.get_command(click.Context(found), word)
            if command is not None:
                names.append(word)
                found = command
        elif word == "--" or not found.context_settings.get("allow_interspersed_args", True):
            break
    color = given["--color"]
    return Asked(
        command=" ".join(names),
        format="json" if given["--format"] == "json" else "table",
        color="always" if color == "always" else "never" if color == "never" else "auto",
        machine=f"--sim {shlex.quote(given['--sim'])} " if given.get("--sim") else "",
        session=f"--session {shlex.quote(given['--session'])} " if given.get("--session") else "",
    )


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each global option with its value, and each word that is no option, `--` too, with an empty option."""
    valued = {name for option in global_options() if not option.is_flag for name in option.opts}
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if option in valued:
            yield option, value if equals else next(words, "")
        elif word == "--" or not word.startswith("-"):
            yield "", word
