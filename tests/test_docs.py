"""What the documentation shows exists: commands, links, exit statuses, error codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.command_lines import reads
from cli.conftest import settled

from mempool_cli import exit_status
from mempool_cli.__main__ import run

from transcripts import printed, shown

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]
EXIT_STATUS = ROOT / "docs" / "exit-status.md"
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:    |)(?:\$ )?(mempool(?: .*)?)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def commands(text: str) -> list[str]:
    """The command lines in indented and fenced code that begin with `mempool`."""
    indented = "\n".join(line for line in _FENCE.sub("", text).splitlines() if line.startswith("    "))
    code = [*_FENCE.findall(text), indented]
    return [found for block in code for found in _COMMAND.findall(block)]


def table(heading: str) -> list[list[str]]:
    """The rows of the table under a heading, without its head."""
    section = EXIT_STATUS.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    return rows[2:]


@each_page
def test_commands_exist(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands(page.read_text()):
        assert reads(command, monkeypatch), f"{command}\n{capsys.readouterr().err}"


def test_commands_are_found() -> None:
    text = "    mempool list\n    $ mempool show 0  # why\n\nmempool is\n\n```sh\nmempool devices\n$ mempool\n```\n"
    assert commands(text) == ["mempool devices", "mempool", "mempool list", "mempool show 0  # why"]
    assert len(commands((ROOT / "README.md").read_text())) >= 5


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        if not re.match(r"https?://|mailto:|#", target):
            path, _, anchor = target.partition("#")
            assert (page.parent / path).exists(), target
            assert not anchor or anchor in anchors(page.parent / path), target


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_error_code_is_listed_with_its_status() -> None:
    listed = [(code.strip("`"), int(status)) for code, status, _, _ in table("Error codes")]
    assert listed == list(exit_status.EXIT_STATUS.items())


def test_every_exit_status_is_listed() -> None:
    listed = [int(status) for status, _, _ in table("Exit statuses")]
    named = {value for name, value in vars(exit_status).items() if name.isupper() and isinstance(value, int)}
    assert listed == sorted(named)


def test_every_code_and_status_is_explained() -> None:
    assert all(row[-2] for heading in ("Error codes", "Exit statuses") for row in table(heading))
    assert all(row[-1] for row in table("Error codes") if row[0].strip("`") not in SAYS_ALL)


SAYS_ALL = ("inconclusive", "interrupted", "terminated")


def test_the_example_is_real(runtime: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shown = EXIT_STATUS.read_text().partition("    $ mempool ")[2].partition("    $ echo $?\n")
    lines = [line.removeprefix("    ") for line in shown[0].splitlines()]
    status = run(lines[0].split())
    assert capfd.readouterr() == ("", "\n".join(lines[1:]) + "\n")
    assert shown[2].startswith(f"    {status}\n")


@pytest.mark.parametrize("name", ["README.md", "docs/pools-and-peers.md"])
def test_what_a_page_shows_is_real(name: str, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    transcripts = shown((ROOT / name).read_text())
    assert len(transcripts) >= 5
    for command, output in transcripts:
        assert settled(printed(command, monkeypatch)) == settled(output), command


def test_transcripts_are_found() -> None:
    page = "    $ mempool list\n    no pools\n\n    a program\n    $ mempool show\n\nText\n    mempool devices\n"
    assert shown(page) == [("mempool list", "no pools\n\na program"), ("mempool show", "")]
