"""A matrix on a terminal and in a pipe: nothing is cut, whatever the width."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import MempoolProcess
from .processes import on_terminal

SIZES = (16, 32)


def cells(output: str) -> dict[tuple[str, str], str]:
    """(pool, column) -> cell, from all blocks of a matrix."""
    found: dict[tuple[str, str], str] = {}
    head: list[str] = []
    for words in (line.split() for line in output.splitlines()):
        if words[:1] == ["pool"]:
            head = words
        elif words and words[0].startswith("default:"):
            assert len(words) == len(head), words
            found |= {(words[0], column): cell for column, cell in zip(head[1:], words[1:], strict=True)}
    return found


def expected(devices: int) -> dict[tuple[str, str], str]:
    matrix: dict[tuple[str, str], str] = {}
    for row in range(devices):
        matrix |= {(f"default:{row}", "kind"): "default,current", (f"default:{row}", "on"): str(row)}
        matrix |= {(f"default:{row}", "host"): "-"}
        matrix |= {(f"default:{row}", str(column)): "own" if row == column else "-" for column in range(devices)}
    return matrix


@pytest.mark.parametrize("devices", SIZES)
def test_a_pipe_gets_natural_width_whatever_columns_says(
    mempool_process: MempoolProcess, monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = mempool_process("--sim", str(devices), "probe", "--matrix")
    assert done.status == 0
    assert cells(done.out) == expected(devices)
    assert sum(line.startswith("pool ") for line in done.out.splitlines()) == 1
    assert done.out.isascii()
    assert done.out.isprintable() is False  # newlines
    assert "\x1b" not in done.out


@pytest.mark.parametrize("devices", SIZES)
def test_a_narrow_terminal_gets_blocks(runtime: Path, devices: int) -> None:
    done = on_terminal(80, "--sim", str(devices), "probe", "--matrix", "--color", "never")
    assert done.status == 0
    assert cells(done.out) == expected(devices)
    assert sum(line.startswith("pool ") for line in done.out.splitlines()) > 1
    assert max(map(len, done.out.splitlines()[:-1])) <= 80


def test_blocks_of_a_narrow_terminal(runtime: Path) -> None:
    done = on_terminal(48, "--sim", "3", "probe", "--matrix", "--color", "never")
    assert (
        done.out
        == """\
SIMULATED machine 3: no hardware was asked
pool       kind             on  host  0    1
default:0  default,current  0   -     own  -
default:1  default,current  1   -     -    own
default:2  default,current  2   -     -    -

pool       2
default:0  -
default:1  -
default:2  own

own  the pool is on this device
-    no access; a device could be granted it

device  name         bus id
0       NVIDIA H200  0000:01:00.0
1       NVIDIA H200  0000:03:00.0
2       NVIDIA H200  0000:05:00.0

device  uuid
0       GPU-6090f7d1-e4dd-57e6-9768-669dad3214b8
1       GPU-e60664c9-5fa7-55d3-b3e9-2383ca5faf7d
2       GPU-ddd6ede9-f2b5-5396-a65b-2b9452a400eb

no session was asked: in a new process pools
  start ungranted
a program's pools are its own: see
  `mempool exec`
"""
    )


@pytest.mark.parametrize(
    ("arguments", "folded"),
    [
        ("devices", "device  pools  host pools  peers"),
        ("show 0", "device  uuid"),
        ("check --list", "check       what"),
        ("repro --list", "               pool says NONE"),
        ("repro pointer-flags --repeat 1", "  there is not"),
        ("doctor", "no libcuda, IOMMU, container or"),
        ("verify --owner 0 --accessor 1 --size 8 -v", "    first at offset 0: what was there before"),
    ],
)
def test_80_columns_are_enough(runtime: Path, arguments: str, folded: str) -> None:
    done = on_terminal(80, "--sim", "8,fault=mirror:0-1", *arguments.split(), "--color", "never")
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(folded in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "environment", "coloured"),
    [
        ([], {}, True),
        ([], {"NO_COLOR": "1"}, False),
        ([], {"TERM": "dumb"}, False),
        (["--color", "never"], {}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--format", "json"], {}, False),
    ],
)
def test_colour_on_a_terminal(runtime: Path, arguments: list[str], environment: dict[str, str], coloured: bool) -> None:
    done = on_terminal(200, "--sim", "2", "probe", "--matrix", *arguments, **environment)
    assert done.status == 0
    assert ("\x1b[" in done.out) is coloured


def test_colour_in_a_pipe_only_when_asked(mempool_process: MempoolProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" not in mempool_process("--sim", "2", "devices").out
    assert "\x1b[" in mempool_process("--sim", "2", "devices", "--color", "always").out
