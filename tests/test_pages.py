"""What is generated: a page for every command, and the pictures of the README."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from cli.command_lines import every_command

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
COMMANDS = [" ".join(("mempool", *path)) for path in every_command()]


def test_the_pictures_are_those_of_the_tool() -> None:
    made: dict[str, str] = runpy.run_path(str(ROOT / "scripts" / "pictures.py"))["pictures"]()
    committed = {path.name: path.read_text(encoding="utf-8") for path in PICTURES.iterdir()}
    assert committed == made, "`make pictures` writes them again"
    assert all(f"docs/pictures/{name}" in (ROOT / "README.md").read_text() for name in made)


@pytest.mark.parametrize("picture", sorted(PICTURES.iterdir()), ids=lambda path: path.name)
def test_a_picture_is_small_and_loads_nothing(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert len(text) < 8192
    assert "url(" not in text
    assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert text.count("://") == 1  # the name space


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    made: dict[str, str] = runpy.run_path(str(ROOT / "scripts" / "pages.py"))["man_pages"]()
    return made


def test_every_command_has_a_man_page(pages: dict[str, str]) -> None:
    assert list(pages) == [f"{name.replace(' ', '-')}.1" for name in COMMANDS]
    for name, page in zip(COMMANDS, pages.values(), strict=True):
        assert page.startswith(f'.TH "{name.upper()}" "1"')
        assert f".SH EXAMPLES\n.nf\n  {name.split()[0]} " in page
    assert r"\fB\-\-to\fP DEV..." in pages["mempool-grant.1"]
    assert r"\fB\-\-sim\fP SPEC" in pages["mempool-grant.1"]
    assert ".SH ENVIRONMENT\n" in pages["mempool.1"]
    assert r"\fBmempool-grant(1)\fP" in pages["mempool.1"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_man_pages_are_right(pages: dict[str, str]) -> None:
    command = ["groff", "-man", "-Tascii", "-ww", "-rF0"]
    done = subprocess.run(command, input="".join(pages.values()), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "who may access what, as the driver says" in done.stdout


def test_one_page_has_all_commands() -> None:
    page: str = runpy.run_path(str(ROOT / "scripts" / "pages.py"))["markdown"]()
    assert [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")] == COMMANDS
