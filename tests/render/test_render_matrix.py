from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from mempool_cli.model import AccessMatrix
from mempool_cli.render.layout import plain
from mempool_cli.render.matrix import matrix

from render_samples import (
    DEFAULT,
    LOCAL,
    MATRIX,
    answer,
    cell,
    device,
    emitted,
    everything,
    out_of,
    pool,
    row,
    square,
)


def test_a_cell_of_each_kind() -> None:
    status, out, err = emitted(answer(everything()), MATRIX)
    assert status == 4
    assert (
        out
        == """\
pool       kind             on      host  0    1      2      3     4
default:0  default,current  0       -     own  RW     RW!    np    n/s
default:1  default          1       -     R    own:-  -      0x7?  n/s
default:4  default,current  4       n/s   n/s  n/s    n/s    n/s   n/s
staging    created          numa:0  RW    RW   err    0x7?!  -     n/s

own   the pool is on this device
own:  the pool is on this device, yet the driver reports only the access that follows
RW    may read and write
R     may only read
-     no access; a device could be granted it
np    no access; this device cannot reach the pool (not peer-capable)
n/s   no pool support, not asked
0xN?  access flags that are not known here
err   the driver did not answer
!     contradiction: granted, but this device cannot reach the pool

device  name                    bus id        uuid
0       NVIDIA H200             0000:19:00.0  GPU-00000000-0000-4000-8000-000000000000
1       NVIDIA H200             0000:1a:00.0  GPU-00000001-0000-4000-8000-000000000000
2       NVIDIA H200             0000:1b:00.0  GPU-00000002-0000-4000-8000-000000000000
3       NVIDIA H200             0000:1c:00.0  GPU-00000003-0000-4000-8000-000000000000
4       NVIDIA GeForce GTX 750  0000:1d:00.0  GPU-00000004-0000-4000-8000-000000000000
"""
    )
    assert (
        err
        == """\
error: 1 of 24 cells could not be read [unreadable-cells]
  driver: cuMemPoolGetAccess = CUDA_ERROR_UNKNOWN (999)
"""
    )


def test_the_legend_explains_only_what_occurs() -> None:
    shown = AccessMatrix(
        devices=(device(0), device(1)), rows=(row(DEFAULT, cell(0, "rw", owner=True), cell(1, "none")),)
    )
    assert (
        out_of(answer(shown, LOCAL), MATRIX)
        == """\
pool       kind             on  host  0    1
default:0  default,current  0   -     own  -

own  the pool is on this device
-    no access; a device could be granted it

device  name         bus id        uuid
0       NVIDIA H200  0000:19:00.0  GPU-00000000-0000-4000-8000-000000000000
1       NVIDIA H200  0000:1a:00.0  GPU-00000001-0000-4000-8000-000000000000

no session was asked: in a new process pools start ungranted
a program's pools are its own: see `mempool exec`
"""
    )


def test_a_narrow_terminal_gets_blocks() -> None:
    lines = [text.plain for text in matrix(square(8), 51)]
    assert (
        "\n".join(lines[:29])
        == """\
pool       kind             on  host  0    1    2
default:0  default,current  0   -     own  RW   -
default:1  default,current  1   -     -    own  RW
default:2  default,current  2   -     -    -    own
default:3  default,current  3   -     -    -    -
default:4  default,current  4   -     -    -    -
default:5  default,current  5   -     -    -    -
default:6  default,current  6   -     -    -    -
default:7  default,current  7   -     -    -    -

pool       3    4    5    6    7
default:0  -    -    -    -    -
default:1  -    -    -    -    -
default:2  RW   -    -    -    -
default:3  own  RW   -    -    -
default:4  -    own  RW   -    -
default:5  -    -    own  RW   -
default:6  -    -    -    own  RW
default:7  -    -    -    -    own

own  the pool is on this device
RW   may read and write
-    no access; a device could be granted it

device  name         bus id
0       NVIDIA H200  0000:19:00.0
1       NVIDIA H200  0000:1a:00.0
2       NVIDIA H200  0000:1b:00.0
3       NVIDIA H200  0000:1c:00.0"""
    )


def test_eight_devices_fit_80_columns() -> None:
    assert max(len(text.plain) for text in matrix(square(8), None)[:9]) <= 80


@pytest.mark.parametrize("width", [1, 20, 40, 79, 80, 81, 200])
def test_blocks_lose_no_cell_and_keep_the_width(width: int) -> None:
    count = 16
    heads: list[str] = []
    cells = 0
    widest_pair = len("default:10") + 2 + len("default,current")
    for text in matrix(square(count), width):
        assert text.plain == text.plain.rstrip()
        words = text.plain.split()
        if words and words[0] == "pool":
            heads += words[1:]
        elif words and words[0].startswith("default:"):
            cells += len(words) - 1
            assert len(text.plain) <= max(width, widest_pair)
    assert heads == ["kind", "on", "host", *map(str, range(count))]
    assert cells == count * (count + 3)


@pytest.mark.parametrize("count", [16, 32])
def test_piped_it_has_its_natural_width(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "10")
    lines = out_of(answer(square(count)), MATRIX).splitlines()
    assert lines[0].split() == ["pool", "kind", "on", "host", *map(str, range(count))]
    for owner, text in enumerate(lines[1 : count + 1]):
        expected = ["-"] * count
        expected[owner] = "own"
        expected[owner + 1 : owner + 2] = ["RW"] if owner + 1 < count else []
        assert text.split() == [f"default:{owner}", "default,current", str(owner), "-", *expected]


def test_unknown_flags_keep_their_number() -> None:
    odd = cell(1, "unknown")
    shown = AccessMatrix(devices=(device(0), device(1)), rows=(row(DEFAULT, cell(0, "rw", owner=True), odd),))
    assert "0x7?" in out_of(answer(shown), MATRIX)


def test_no_pools() -> None:
    assert out_of(answer(AccessMatrix(devices=(device(0),), rows=())), MATRIX) == "no pools\n"


def test_wide_characters_keep_the_columns() -> None:
    shown = AccessMatrix(
        devices=(device(0, name="\u5361\u4e00"), device(1, name="abc")),
        rows=(row(pool("p"), cell(0, "rw", owner=True), cell(1, "r")),),
    )
    assert out_of(answer(shown), MATRIX).splitlines()[-2:] == [
        "0       \u5361\u4e00  0000:19:00.0  GPU-00000000-0000-4000-8000-000000000000",
        "1       abc   0000:1a:00.0  GPU-00000001-0000-4000-8000-000000000000",
    ]


def square_of(count: int) -> AccessMatrix:
    cells = tuple(cell(at, "rw" if at % 2 else "none") for at in range(count))
    return AccessMatrix(
        devices=tuple(device(at) for at in range(count)),
        rows=tuple(row(pool(f"pool-{at}"), *cells) for at in range(count)),
    )


def calls_of(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, the work calls: what does not depend on the machine's load."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_cell_costs_the_same_in_a_large_matrix() -> None:
    small, large = square_of(48), square_of(96)
    cost = calls_of(lambda: plain(matrix(large, None)))
    assert cost / calls_of(lambda: plain(matrix(small, None))) < 4.2
    assert cost / 96**2 < 60  # a cell of a rich Table: over 400
