"""Values as words: safe strings, sizes, times. Pure ASCII, but for what others named."""

from __future__ import annotations

from datetime import UTC, datetime

from mempool_cli.model import Pool

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def visible(text: str) -> str:
    r"""The text with everything that does not print escaped: controls, bidi and line separators, raw bytes.

    A newline becomes `\n`, an escape `\x1b`, a byte f8 that was no UTF-8 `\xf8`. Brackets and backslashes
    stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # surrogateescape: one raw byte
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


def roles(pool: Pool) -> str:
    """`default,current`; `-` for a pool without a role."""
    return ",".join(pool.roles) or "-"


def size(count: int | None) -> str:
    """Bytes in the largest binary unit that is not below one, `-` when not known; one decimal when uneven."""
    if count is None:
        return "-"
    exponent = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    scale = 1 << (10 * exponent)
    number = str(count // scale) if count % scale == 0 else f"{count / scale:.1f}"
    return f"{number} {_UNITS[exponent]}"


def max_size(count: int | None) -> str:
    """A pool's largest size: 0 leaves it to the driver."""
    return "driver default" if count == 0 else size(count)


def threshold(count: int | None) -> str:
    """A release threshold; the largest value of its type keeps all memory."""
    return "keep all" if count == 2**64 - 1 else size(count)


def moment(stamp: str) -> str:
    """`2026-12-01 04:20 UTC` for an ISO 8601 time in UTC; what is no time stays as it is."""
    try:
        when = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    if when.tzinfo is not None:
        when = when.astimezone(UTC)
    return f"{when:%Y-%m-%d %H:%M} UTC"


def calls(count: int) -> str:
    """`1 cuMemPoolSetAccess call`."""
    return f"{count or 'no'} cuMemPoolSetAccess call{'s' if count > 1 else ''}"
