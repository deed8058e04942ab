"""Writes a page a command, as click says it now: `python scripts/pages.py build` makes commands.md and man1/ in it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import click
from click_man.man import ManPage

from mempool_cli import __version__
from mempool_cli.commands import cli


def contexts() -> Iterator[click.Context]:
    """The program, its groups and its commands, in the order of the help page."""
    yield from _below(cli, None, "mempool")


def _below(command: click.Command, parent: click.Context | None, name: str) -> Iterator[click.Context]:
    ctx = command.context_class(command, info_name=name, parent=parent, **command.context_settings)
    yield ctx
    if isinstance(command, click.Group):
        for each in command.list_commands(ctx):
            found = command.get_command(ctx, each)
            assert found is not None
            yield from _below(found, ctx, each)


def man_pages() -> dict[str, str]:
    """Each man page by its file name."""
    return {f"{ctx.command_path.replace(' ', '-')}.1": _man_page(ctx) for ctx in contexts()}


def _man_page(ctx: click.Context) -> str:
    command = ctx.command
    page = ManPage(ctx.command_path)
    page.version, page.date = __version__, ""
    page.short_help = _roff(command.get_short_help_str(limit=200))
    page.synopsis = " ".join(command.collect_usage_pieces(ctx))
    page.description = _roff(cleandoc(command.help or ""))
    records = [param.get_help_record(ctx) for param in command.get_params(ctx) if isinstance(param, click.Option)]
    page.options = [(names, _roff(words)) for names, words in filter(None, records)]
    if isinstance(command, click.Group):
        found = ((name, command.get_command(ctx, name)) for name in command.list_commands(ctx))
        page.commands = [(name, _roff(each.get_short_help_str(limit=200))) for name, each in found if each]
    return f"{page}{_epilog(command.epilog or '')}"


def _epilog(text: str) -> str:
    """The examples of a help page, as they are typed, and what follows them."""
    examples, _, rest = text.removeprefix("\b\nExamples:\n").partition("\n\n")
    lines = [".SH EXAMPLES", ".nf", *map(_roff, examples.splitlines()), ".fi"]
    if rest:
        lines += [".SH ENVIRONMENT", _roff(rest)]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    """Words that roff takes as they are; `-` is one that can be copied."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def markdown() -> str:
    """All help pages as one page."""
    return "# Commands\n" + "".join(f"\n## {ctx.command_path}\n\n```\n{ctx.get_help()}\n```\n" for ctx in contexts())


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    (directory / "man1").mkdir(parents=True, exist_ok=True)
    (directory / "commands.md").write_text(markdown(), encoding="utf-8")
    for name, text in man_pages().items():
        (directory / "man1" / name).write_text(text, encoding="utf-8")
