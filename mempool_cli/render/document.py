"""The JSON document, as text."""

from __future__ import annotations

import json
import re

from mempool_cli.model import Answer, envelope

_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def document(command: str, answer: Answer) -> str:
    """One line of ASCII and a newline.

    Bytes that were no UTF-8 become U+FFFD: a lone surrogate would be ASCII too, but strict parsers refuse it.
    """
    text = json.dumps(envelope(command, answer), ensure_ascii=False, allow_nan=False)
    if not text.isascii():
        text = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
        text = _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return text + "\n"
