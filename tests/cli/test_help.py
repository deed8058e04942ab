"""Help pages: fit on a screen, with examples that work, and quick."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from mempool_cli.commands import cli

from .command_lines import every_command, reads
from .conftest import Mempool
from .processes import SECONDS

COMMANDS = [pytest.param(path, id=" ".join(path) or "mempool") for path in every_command()]


def examples(page: str) -> list[str]:
    lines = [line.strip() for line in page.splitlines()]
    return [line for line in lines[lines.index("Examples:") + 1 :] if line.startswith("mempool")]


@pytest.mark.parametrize("columns", [None, "40", "300"])
@pytest.mark.parametrize("path", COMMANDS)
def test_a_page(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...], columns: str | None) -> None:
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    status, page, err = mempool(*path, "--help")
    assert (status, err) == (0, "")
    assert mempool(*path, "-h").out == page
    assert page.startswith(f"Usage: {' '.join(('mempool', *path))} [OPTIONS]")
    assert max(map(len, page.splitlines())) <= 100
    assert page.isascii()


@pytest.mark.parametrize("path", COMMANDS)
def test_the_examples_of_a_page_can_be_typed(
    mempool: Mempool, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...]
) -> None:
    lines = examples(mempool(*path, "--help").out)
    assert lines
    for line in lines:
        assert reads(line, monkeypatch), line
        assert " ".join(path) in line


def test_what_is_no_example_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in ("mempool grnt 0 --to 1", "mempool grant 0 --too 1", "mempool grant 0", "mempool --format yaml list"):
        assert not reads(line, monkeypatch)


def test_the_page_of_the_program_names_each_command_once(mempool: Mempool) -> None:
    page = mempool("--help").out
    names = [line.split()[0] for line in page.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()]
    assert names == [path[0] for path in every_command() if len(path) == 1]


def test_global_options_are_explained_on_one_page_only(mempool: Mempool) -> None:
    for option in ("--sim", "--session", "--no-session", "--format", "--color", "--trace", "--timeout", "--version"):
        assert f"\n  {option} " in mempool("--help").out
        assert f"\n  {option} " not in mempool("session", "--help").out
        assert f"\n  {option} " not in mempool("grant", "--help").out


def test_an_argument_that_may_be_left_out_is_in_brackets(mempool: Mempool) -> None:
    assert mempool("probe", "--help").out.startswith("Usage: mempool probe [OPTIONS] [POOL]...\n")
    assert mempool("destroy", "--help").out.startswith("Usage: mempool destroy [OPTIONS] POOL...\n")


SLOW = ("rich", "cuda", "asyncio", "socket", "numpy", "mempool_cli.model", "mempool_cli.session", "mempool_cli.driver")


@pytest.mark.parametrize("arguments", [["--help"], ["grant", "--help"], ["--version"]])
def test_help_loads_nothing_slow(arguments: list[str]) -> None:
    code = f"""
import sys
known = set(sys.modules)
from mempool_cli.__main__ import run
run({arguments!r})
print("loaded:", *sorted(set(sys.modules) - known))
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=SECONDS)
    loaded = done.stdout.splitlines()[-1].split()
    assert loaded[0] == "loaded:"
    assert "mempool_cli.commands" in loaded
    assert [name for name in loaded if name in SLOW or name.startswith(tuple(f"{slow}." for slow in SLOW))] == []


def test_the_first_page_has_the_first_line_of_each(mempool: Mempool) -> None:
    """It is written twice, so that the page imports no command."""
    page = mempool("--help").out
    ctx = click.Context(cli)
    for name in cli.list_commands(ctx):
        command = cli.get_command(ctx, name)
        assert command is not None
        assert f"\n  {name:<13}{command.get_short_help_str(limit=100)}\n" in page
