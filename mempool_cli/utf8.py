"""Text that can be sent and stored."""

from __future__ import annotations


def utf8(text: str) -> str:
    """The same, where bytes that were no UTF-8, which Python keeps as surrogates, have been replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
