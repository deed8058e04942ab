"""Lines that are wider than the terminal."""

from __future__ import annotations

import os
from io import StringIO

import pytest

from mempool_cli.errors import Problem
from mempool_cli.model import AccessMatrix, Answer, Row
from mempool_cli.render.layout import folded, grid, line, plain
from mempool_cli.render.stream import pause
from mempool_cli.render.text import note_lines
from mempool_cli.render.watching import changes

from render_samples import DEFAULT, HOST_NONE, HOST_RW, cell, pool, refused, row

WORDS = "error: the owner cannot lose access; nothing was changed [owner-access]"


CARD = "\u5361"  # two columns wide


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        (WORDS, 80, WORDS),
        (WORDS, 40, "error: the owner cannot lose access;\n  nothing was changed [owner-access]"),
        (WORDS, 20, WORDS),
        ("  try: this", 40, "  try: this"),
        ("0  a b   which words stand here and go on", 40, "0  a b   which words stand here and go\n         on"),
        ("see `mempool show train --format json` there", 37, "see\n  `mempool show train --format json`\n  there"),
        ("see `mempool a b c d e f g h i j k l m n o p`", 40, "see `mempool a b c d e f g h i j k l m n\n  o p`"),
        (f"at /{'x' * 40} there", 30, f"at\n  /{'x' * 40}\n  there"),
        (f"{CARD} " * 12, 30, f"{f'{CARD} ' * 10}\n  {CARD} {CARD}"),
    ],
)
def test_a_line(text: str, width: int, shown: str) -> None:
    assert [part.plain.rstrip() for part in folded([line(text)], width)] == [
        each.rstrip() for each in shown.splitlines()
    ]


def test_no_width_folds_nothing() -> None:
    assert plain(folded([line("x " * 500)], None)) == "x " * 500 + "\n"


def test_colours_stay_with_their_words() -> None:
    first, second = folded([line(("error:", "bold red"), " the words that follow are ", ("coloured", "green"))], 30)
    assert [(first.plain[span.start : span.end], span.style) for span in first.spans] == [("error:", "bold red")]
    assert [(second.plain[span.start : span.end], span.style) for span in second.spans] == [("coloured", "green")]


def test_a_table_is_folded_below_its_last_column() -> None:
    rows = [("a", "some words that are longer than the room for them"), ("b", "short")]
    assert plain(folded(grid(("name", "what"), rows, width=40), 40)) == (
        "name  what\na     some words that are longer than\n      the room for them\nb     short\n"
    )


def test_a_failure_is_folded_on_a_terminal() -> None:
    problem = Problem(code="usage", message="a b c d e f g h i j", hint="see `mempool show` and other things")
    assert plain(note_lines(Answer(failure=problem), quiet=False, width=30)) == (
        "error: a b c d e f g h i j\n  [usage]\n  try: see `mempool show` and\n    other things\n"
    )


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (row(DEFAULT, cell(1, "none")), row(DEFAULT, cell(1, "none")), []),
        (
            row(DEFAULT, cell(0, "rw", owner=True), cell(1, "none")),
            row(DEFAULT, cell(0, "rw", owner=True), cell(1, "rw")),
            ["default:0: device 1 none -> RW"],
        ),
        (
            row(DEFAULT, cell(1, "none", capable=False), host=HOST_NONE),
            row(DEFAULT, cell(1, "rw", capable=False), host=HOST_RW),
            ["default:0: device 1 not capable -> RW but not capable", "default:0: host none -> RW"],
        ),
        (row(DEFAULT, cell(1, "rw")), row(DEFAULT, refused(1)), ["default:0: device 1 RW -> unreadable"]),
        (
            row(pool("a"), cell(0, "rw", owner=True)),
            row(pool("b", None, location="host"), cell(0, "none")),
            ["a: gone", "b: new on the host: none 0"],
        ),
    ],
)
def test_changes(before: Row, now: Row, told: list[str]) -> None:
    old, new = (AccessMatrix(devices=(), rows=(each,)) for each in (before, now))
    assert list(changes(old, new)) == told


def test_a_pause_ends_when_the_reader_goes_away() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        pause(stream, 0.001)
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            pause(stream, 3600)


def test_a_pause_of_what_is_no_descriptor() -> None:
    pause(StringIO(), 0.001)
