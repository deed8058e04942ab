from __future__ import annotations

import pytest

from mempool_cli.errors import Problem
from mempool_cli.model import AccessMatrix, Answer, DeviceList, Event, Notice
from mempool_cli.render import Output, event_line
from mempool_cli.render.words import moment, size, visible
from mempool_cli.wording import idle, ranges

from render_samples import MATRIX, answer, cell, device, emitted, out_of, pool, row

ODD = [
    ("NVIDIA [bold]X", "NVIDIA [bold]X"),
    ("[unknown error]", "[unknown error]"),
    ("0000:ab:00.0 :smile: :ab:", "0000:ab:00.0 :smile: :ab:"),
    ("[/]\\[", "[/]\\["),
    ("a\x1b[31mb\x07", "a\\x1b[31mb\\x07"),
    ("two\nlines\r\n\ttab", "two\\nlines\\r\\n\\ttab"),
    ("c1 \x9b31m \x85", "c1 \\x9b31m \\x85"),
    ("bidi \u202egpj \u2066", "bidi \\u202egpj \\u2066"),
    ("sep \u2028 \u2029 \ufeff", "sep \\u2028 \\u2029 \\ufeff"),
    ("raw \udcf8\udcff", "raw \\xf8\\xff"),
    ("lone \ud800", "lone \\ud800"),
    ("caf\u00e9", "caf\u00e9"),
    ("https://example.com 123 True 'x'", "https://example.com 123 True 'x'"),
]


@pytest.mark.parametrize(("given", "shown"), ODD)
@pytest.mark.parametrize("color", ["never", "always"])
def test_strings_print_as_they_are_with_controls_escaped(given: str, shown: str, color: str) -> None:
    machine = AccessMatrix(
        devices=(device(0, name=given),), rows=(row(pool("p"), cell(0, "rw", owner=True)),),
        warnings=(Notice("odd", given),),
    )  # fmt: skip
    failure = Problem(code="unknown-pool", message=given, hint=given)
    output = Output(matrix=True, color="always" if color == "always" else "never")
    _, out, err = emitted(answer(machine, failure=failure), output)
    out, err = uncoloured(out), uncoloured(err)
    assert f"\n0       {shown}  0000:19:00.0  GPU-" in out
    assert err == f"warning: {shown} [odd]\nerror: {shown} [unknown-pool]\n  try: {shown}\n"


def uncoloured(text: str) -> str:
    for code in ("0", "1", "2", "1;31", "1;35", "32", "36"):
        text = text.replace(f"\x1b[{code}m", "")
    return text


def test_a_long_name_is_neither_cut_nor_wrapped() -> None:
    name = "x" * 300
    machine = AccessMatrix(devices=(device(0, name=name),), rows=(row(pool("p"), cell(0, "rw", owner=True)),))
    for color in ("never", "always"):
        out = out_of(answer(machine), MATRIX._replace(color=color))
        assert f"{name}  0000:19:00.0" in uncoloured(out)


def test_a_long_message_stays_on_one_line() -> None:
    failure = Problem(code="usage", message="word " * 100 + "end")
    for color in ("never", "always"):
        _, _, err = emitted(Answer(failure=failure), Output(color=color))
        assert uncoloured(err) == "error: " + "word " * 100 + "end [usage]\n"


def test_an_event_is_one_safe_line() -> None:
    assert event_line(Event("trace", "cuInit() = 0\n\x1b[2J")) == "cuInit() = 0\\n\\x1b[2J"


def test_what_we_write_ourselves_is_ascii() -> None:
    assert out_of(answer(DeviceList(devices=()))).isascii()


@pytest.mark.parametrize(
    ("ordinals", "text"),
    [((), "-"), ((0,), "0"), ((0, 1), "0-1"), ((0, 2, 3, 4, 9), "0, 2-4, 9"), (tuple(range(1024)), "0-1023")],
)
def test_ranges(ordinals: tuple[int, ...], text: str) -> None:
    assert ranges(ordinals) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1025, "1.0 KiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 60, "1 EiB"),
        (2**64 - 1, "16.0 EiB"),
    ],
)
def test_sizes(count: int | None, text: str) -> None:
    assert size(count) == text


def test_times() -> None:
    assert moment("2026-12-01T04:20:59.5Z") == "2026-12-01 04:20 UTC"
    assert moment("2026-12-01T05:20:00+01:00") == "2026-12-01 04:20 UTC"
    assert moment("soon") == "soon"
    assert (idle(1800), idle(60), idle(90)) == ("30 idle minutes", "1 idle minute", "90 idle seconds")


def test_visible_leaves_text_alone() -> None:
    assert visible("plain") == "plain"
