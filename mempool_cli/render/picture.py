"""An answer as a file: a picture, a page or plain text, to attach to a bug report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from typing import Literal

from rich.terminal_theme import TerminalTheme
from rich.text import Text

from mempool_cli import __version__
from mempool_cli.model import Answer
from mempool_cli.render.layout import line, plain, print_to
from mempool_cli.render.text import note_lines, result_lines

Ending = Literal[".svg", ".html", ".txt"]


def _theme(*colours: str) -> TerminalTheme:
    """Background, text, then black, red, green, yellow, blue, magenta, cyan and white."""
    background, text, *ansi = map(_rgb, colours)
    return TerminalTheme(background, text, ansi)


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour)
    return red, green, blue


# as GitHub's pages
LIGHT = _theme(*["ffffff", "1f2328", "24292f", "cf222e", "116329", "4d2d00", "0969da", "8250df", "1b7c83", "57606a"])
DARK = _theme(*["0d1117", "e6edf3", "484f58", "ff7b72", "3fb950", "d29922", "58a6ff", "bc8cff", "39c5cf", "b1bac4"])

# rich's own pages load a font from the network
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
text {{ font: 20px monospace; white-space: pre }}
{styles}
</style>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}{matrix}
</g>
</svg>
"""
_HTML = """\
<!DOCTYPE html>
<meta charset="utf-8">
<title>TITLE</title>
<style>body {{ color: {foreground}; background: {background} }}</style>
<pre>{code}</pre>
"""


def saved(answer: Answer, ending: Ending, *, command: str, matrix: bool) -> str:
    """What the command shows, its warnings and failure too, and which versions answered."""
    lines = result_lines(answer, as_matrix=matrix, quiet=False, verbose=False, width=None)
    notes = note_lines(answer, quiet=False, width=None)
    lines += [line(), *notes] if notes else []
    lines += [line(), line(_versions(answer))]
    if ending == ".txt":
        return plain(lines)
    return svg(lines, command, LIGHT) if ending == ".svg" else _html(lines, command)


def svg(lines: Sequence[Text], title: str, theme: TerminalTheme) -> str:
    """The lines as a picture of a terminal, the same bytes for the same lines."""
    picture = print_to(StringIO(), lines, record=True).export_svg(
        title=title, theme=theme, code_format=_SVG, unique_id="t"
    )
    # nothing is as wide as to need clipping, and the ends of lines are no text
    short = re.sub(r' clip-path="[^"]*"|<text [^>]*>\n</text>', "", picture)
    return short.replace("</text><text", "</text>\n<text")


def _html(lines: Sequence[Text], title: str) -> str:
    page = print_to(StringIO(), lines, record=True).export_html(theme=LIGHT, code_format=_HTML, inline_styles=True)
    return page.replace("TITLE", title, 1)


def _versions(answer: Answer) -> str:
    words = [f"mempool {__version__}"]
    if driver := answer.driver:
        words.append(f"CUDA {driver.cuda_version}")
        words += [f"cuda-bindings {driver.bindings}"] if driver.bindings else []
        words += [f"libcuda {driver.libcuda.version}"] if driver.libcuda and driver.libcuda.version else []
        if module := driver.kernel_module:
            words.append(f"kernel module {module.version}" + (f" ({module.flavour})" if module.flavour else ""))
    return ", ".join(words)
