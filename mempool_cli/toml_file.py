"""TOML files that a user writes: what is wrong with one is told with the file and the dotted key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from mempool_cli.errors import MempoolError

T = TypeVar("T")
Hint = Callable[[], str | None]
"""Put together only where something is wrong: every command on a machine from a file comes through here."""

_MIB = 1 << 20
_MOST = 64 * _MIB


def read_text(path: str, *, hint: Hint = lambda: None) -> str:
    """The text of the file; MempoolError `input-file`."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(_MOST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise MempoolError("input-file", f"cannot read {path}: {reason}", hint=hint()) from error
    if len(text) > _MOST:
        raise MempoolError("input-file", f"cannot read {path}: it has more than {_MOST // _MIB} MiB", hint=hint())
    return text


def parse(text: str, file: str) -> dict[str, Any]:
    """The tables of the text; MempoolError `input-file`."""
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of a number with more digits than Python reads
        raise MempoolError("input-file", f"{file}: not TOML: {error}") from error


def convert(table: dict[str, Any], kind: type[T], file: str, *, hint: Hint) -> T:
    """The tables as a value of this type; MempoolError `input-file` names the key that does not fit."""
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise MempoolError("input-file", f"{file}: {_dotted(str(error))}", hint=hint()) from error


def keys(kind: type[msgspec.Struct], tables: dict[str, type[msgspec.Struct]]) -> str:
    """What may stand in such a file; `tables`: those of its keys that are tables."""
    plain = [key for key in kind.__struct_fields__ if key not in tables]
    spelled = [f"{name} ({', '.join(_fields(table))})" for name, table in tables.items()]
    return f"the keys are {', '.join((*plain, *spelled))}"


def _fields(table: type[msgspec.Struct]) -> Iterator[str]:
    """The keys of a table, with their values where these are words: msgspec does not say which there are."""
    hints = get_type_hints(table)
    for key in table.__struct_fields__:
        words = get_args(hints[key]) if get_origin(hints[key]) is Literal else ()
        yield f"{key} = {'|'.join(words)}" if words else key


def _dotted(message: str) -> str:
    """msgspec's "... `x` - at `$.device[0]`" as "device[0].x: ...": a user looks for the key."""
    text, _, where = message.partition(" - at `$")
    where = where.rstrip("`").lstrip(".")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", text, re.DOTALL)
    if unknown:
        return f"unknown key {'.'.join(part for part in (where, unknown[1]) if part)}"
    missing = re.fullmatch(r"Object missing required field `(.*)`", text, re.DOTALL)
    if missing:
        return f"key {'.'.join(part for part in (where, missing[1]) if part)} is missing"
    text = text.replace(" | null", "")  # TOML and JSON have a key or have none
    return f"{where}: {text}" if where else text
