"""`mempool probe --save`: what is shown, as a file."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mempool_cli import __version__

from .conftest import Mempool, MempoolProcess
from .machines import failure, machine

VERSIONS = f"mempool {__version__}, CUDA 13.0"


class Words(HTMLParser):
    """The text of a page's first <pre>."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._inside |= tag == "pre"

    def handle_data(self, data: str) -> None:
        self.text += data if self._inside else ""


def text_of(file: Path) -> str:
    """What a reader of the file sees."""
    content = file.read_text(encoding="utf-8")
    if file.suffix.lower() == ".txt":
        return content
    if file.suffix.lower() == ".html":
        page = Words()
        page.feed(content)
        return page.text
    lines: dict[float, str] = {}
    for word in ET.fromstring(content).iterfind("./{*}g[last()]/{*}text"):
        at = float(word.attrib["y"])
        column = round(float(word.attrib["x"]) / 12.2)
        lines[at] = lines.get(at, "").ljust(column) + (word.text or "").replace("\xa0", " ")
    return "".join(f"{line}\n" for line in lines.values())


@pytest.mark.parametrize("ending", [".svg", ".html", ".txt", ".SVG"])
def test_the_file_has_what_is_shown(mempool: Mempool, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"matrix{ending}"
    done = mempool("--sim", "2", "probe", "--matrix", "--save", str(file))
    assert (done.status, done.err) == (0, "")
    assert done.out == mempool("--sim", "2", "probe", "--matrix").out
    shown = [line for line in text_of(file).splitlines() if line.strip()]
    assert [line.rstrip() for line in shown] == [line for line in (*done.out.splitlines(), VERSIONS) if line]
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_line_a_pool_and_what_went_wrong(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, "[[device]]", failure("cuMemPoolGetAccess", after=1))
    file = tmp_path / "access.txt"
    done = mempool("--sim", spec, "probe", "--save", str(file))
    assert done.status == 4
    assert text_of(file) == f"{done.out}\n{done.err}\n{VERSIONS}\n"


@pytest.mark.parametrize("ending", [".svg", ".html"])
def test_names_mean_nothing_in_a_file(mempool: Mempool, tmp_path: Path, ending: str) -> None:
    name = "<b>&\u00e9[bold] \u202e{styles}"
    file = tmp_path / f"matrix{ending}"
    spec = machine(tmp_path, f"[[device]]\nname = '{name}'")
    assert mempool("--sim", spec, "probe", "--matrix", "--save", str(file)).status == 0
    assert "<b>&\u00e9[bold] \\u202e{styles}" in text_of(file)


def test_json_as_ever_beside_the_file(mempool: Mempool, tmp_path: Path) -> None:
    file = tmp_path / "access.txt"
    done = mempool("--sim", "2", "--format", "json", "probe", "--save", str(file))
    assert re.match(r'\{"schema": "mempool/1", "command": "probe", "ok": true', done.out)
    assert text_of(file).startswith("SIMULATED machine 2")


def test_another_ending_names_the_three(mempool: Mempool, tmp_path: Path) -> None:
    file = tmp_path / "matrix.png"
    assert mempool("--sim", "2", "probe", "--save", str(file)) == (
        2,
        "",
        f"error: Invalid value for '--save': {file} is no name that ends in .svg, .html or .txt [usage]\n"
        "  try: see `mempool probe --help`\n",
    )
    assert not file.exists()


def test_a_place_that_cannot_be_is_told_before(mempool: Mempool, tmp_path: Path) -> None:
    done = mempool("--sim", "2", "probe", "--save", str(tmp_path / "nowhere" / "matrix.svg"))
    assert (done.status, done.out) == (74, "")
    assert done.err.endswith("; nothing was run [output]\n")


def test_a_full_disk_costs_no_answer(mempool: Mempool, tmp_path: Path) -> None:
    file = tmp_path / "full.txt"
    file.symlink_to("/dev/full")
    done = mempool("--sim", "2", "probe", "--save", str(file))
    assert done.out == mempool("--sim", "2", "probe").out
    assert (done.status, done.err) == (
        74, f"error: {file} cannot be written: No space left on device [output]\n"
    )  # fmt: skip


def test_what_has_no_answer_leaves_no_file(mempool: Mempool, tmp_path: Path) -> None:
    file = tmp_path / "matrix.svg"
    assert mempool("--sim", "2", "probe", "nonsense", "--save", str(file)).status == 2
    assert not file.exists()


def test_a_name_that_the_locale_cannot_spell(mempool_process: MempoolProcess, tmp_path: Path) -> None:
    spec = machine(tmp_path, "[[device]]\nname = '\u00e9'")
    file = tmp_path / "matrix.svg"
    c_locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = mempool_process("--sim", spec, "probe", "--matrix", "--save", str(file), env={**os.environ, **c_locale})
    assert (done.status, done.err) == (0, "")
    assert "\u00e9" in text_of(file)
