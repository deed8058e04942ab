"""Lines and columns of text, as rich `Text`: every string that is shown passes through here and is made safe.

Of colours only those that can be read on black and on white: no yellow, nothing dim.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Span, Text

from mempool_cli.render.words import visible

if TYPE_CHECKING:
    from rich.console import Console

Part = str | tuple[str, str]
"""Text, or text and its style."""

_GAP = "  "
_NARROWEST = 24
_WORD = re.compile(r" *[^ ]+")
_WHOLE = re.compile(r" *(?:`[^`]*`|[^ ])+")  # a command to be copied stays whole
_COLUMN = re.compile(r"\S  +(?=\S)")


def line(*parts: Part) -> Text:
    """One line. Markup, emoji codes and control characters in the parts mean nothing."""
    text = Text()
    for part in parts:
        content, style = _split(part)
        text.append(visible(content), style or None)
    return text


def grid(
    head: Sequence[str] | None, rows: Sequence[Sequence[Part]], *, width: int | None = None, indent: str = ""
) -> list[Text]:
    """Left-aligned columns, a line a row, under a head if there is one.

    Columns that do not fit into `width` (None: no limit) go into further blocks, an empty line before each
    and the first column repeated, so that nothing is cut or wrapped; only a single column wider than the
    terminal still is. Linear in the number of cells.
    """
    table = [[_split(part) for part in row] for row in rows]
    if head is not None:
        table.insert(0, [(title, "bold") for title in head])
    table = [[(visible(content), style) for content, style in row] for row in table]
    widths = [max(_width(content) for content, _ in column) for column in zip(*table, strict=True)]
    lines: list[Text] = []
    for block in _blocks(widths, width, len(indent)):
        if lines:
            lines.append(Text())
        lines.extend(_row(row, block, widths, indent) for row in table)
    return lines


def folded(lines: Iterable[Text], width: int | None) -> list[Text]:
    """The lines, those that are wider folded at blanks; what follows stands below the last column on the left half.

    A word that does not fit is left whole, to be copied, and so are lines where there is no room. None: no limit.
    """
    return [part for text in lines for part in _folded(text, width)]


def _folded(text: Text, width: int | None) -> Iterator[Text]:
    if width is None or text.cell_len <= width:
        yield text
        return
    indent = _hanging(text.plain, width)
    if width - indent < _NARROWEST:
        yield text
        return
    cuts: list[int] = []
    used = 0
    for start, word in _words(text.plain, width - indent):
        wide = _width(word)
        if used and used + wide > width:
            cuts.append(start)
            used = indent + _width(word.lstrip(" "))
        else:
            used += wide
    first, *more = text.divide(cuts)
    yield first
    for part in more:
        blanks = len(part.plain) - len(part.plain.lstrip(" "))
        rest = part[blanks:]
        rest.pad_left(indent)
        yield rest


def _words(content: str, room: int) -> Iterator[tuple[int, str]]:
    """Where each word begins, with the blanks before it, and the word; a command is one if there is room for it."""
    for whole in _WHOLE.finditer(content):
        if _width(whole[0].strip(" ")) <= room:
            yield whole.start(), whole[0]
        else:
            yield from ((whole.start() + word.start(), word[0]) for word in _WORD.finditer(whole[0]))


def _hanging(content: str, width: int) -> int:
    """Where the rest of a folded line begins."""
    columns = [found.end() for found in _COLUMN.finditer(content) if found.end() <= width // 2]
    return _width(content[: columns[-1]]) if columns else len(content) - len(content.lstrip(" ")) + 2


def plain(lines: Sequence[Text]) -> str:
    """The lines without colour, each ended by a newline."""
    return "".join(f"{text.plain}\n" for text in lines)


def coloured(lines: Sequence[Text]) -> str:
    """The lines with ANSI colours, each ended by a newline, as long as they are."""
    shown = StringIO()
    print_to(shown, lines)
    return shown.getvalue()


def print_to(file: StringIO, lines: Sequence[Text], *, record: bool = False) -> Console:
    """Writes the coloured lines, as long as they are; with `record` the console can export them too."""
    from rich.console import Console

    console = Console(
        record=record,
        file=file,
        width=max((text.cell_len for text in lines), default=1),
        force_terminal=True,
        force_jupyter=False,
        color_system="standard",
        no_color=False,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    for text in lines:
        console.print(text, soft_wrap=True)
    return console


def _split(part: Part) -> tuple[str, str]:
    return (part, "") if isinstance(part, str) else part


def _width(content: str) -> int:
    return len(content) if content.isascii() else cell_len(content)


def _blocks(widths: Sequence[int], limit: int | None, indent: int) -> Iterator[list[int]]:
    """Column numbers, block by block; column 0 is in each."""
    if not widths:
        return
    first = used = indent + widths[0]
    block = [0]
    for column, wide in enumerate(widths[1:], start=1):
        if limit is not None and used + len(_GAP) + wide > limit and len(block) > 1:
            yield block
            block, used = [0], first
        block.append(column)
        used += len(_GAP) + wide
    yield block


def _row(row: Sequence[tuple[str, str]], block: Sequence[int], widths: Sequence[int], indent: str) -> Text:
    pieces: list[str] = [indent]
    spans: list[Span] = []
    position = len(indent)
    open_style = ""
    for column in block:
        content, style = row[column]
        end = position + len(content)
        if style and style == open_style:
            # one span over a run of equal cells: rich's time goes by spans
            spans[-1] = Span(spans[-1].start, end, style)
        elif style:
            spans.append(Span(position, end, style))
        open_style = style
        padded = content + " " * (widths[column] - _width(content)) + _GAP
        pieces.append(padded)
        position += len(padded)
    return Text("".join(pieces).rstrip(" "), spans=spans)
