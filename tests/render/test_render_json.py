from __future__ import annotations

import json
import re
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from mempool_cli import errors, model
from mempool_cli.errors import DriverWords, Problem
from mempool_cli.model import AccessChange, AccessMatrix, Answer, AnyResult, Notice
from mempool_cli.render import Output

from render_samples import CUDA, DEFAULT, SESSION, answer, cell, device, emitted, everything, pool, row

JSON = Output(format="json", color="always", matrix=True, quiet=True)
PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")


def test_a_result() -> None:
    shown = AccessChange(
        pool=DEFAULT, granted=(1,), set_access_calls=1, cells=(cell(1, "rw"),), warnings=(Notice("odd", "caf\u00e9"),)
    )
    assert emitted(answer(shown, SESSION), JSON) == (
        0,
        '{"schema": "mempool/1", "command": "probe", "ok": true, "exit": 0, '
        '"driver": {"kind": "cuda", "cuda_version": "13.0", "bindings": "13.5.0", "sim": null, "libcuda": null, '
        '"kernel_module": null}, '
        '"where": {"kind": "session", "pid": 4242, "name": "default", "expires": "2026-12-01T04:20:00Z"}, '
        '"data": {"pool": {"name": "default:0", "roles": ["default", "current"], "location": "0", "owner": 0}, '
        '"granted": [1], "revoked": [], "unchanged": [], "owner_skipped": false, "set_access_calls": 1, '
        '"dry_run": false, "unknown": [], "cells": [{"device": 1, "access": "rw", "flags": 3, "owner": false, '
        '"capable": true, '
        '"error": null}]}, "warnings": [{"code": "odd", "message": "caf\\u00e9"}], "error": null}\n',
        "",
    )


def test_a_failure() -> None:
    failure = Problem(code="no-device", message="none", driver=DriverWords("cuInit", 100, "CUDA_ERROR_NO_DEVICE"))
    assert emitted(Answer(failure=failure), JSON) == (
        3,
        '{"schema": "mempool/1", "command": "probe", "ok": false, "exit": 3, "driver": null, "where": null, '
        '"data": null, "warnings": [], "error": {"code": "no-device", "message": "none", "hint": null, '
        '"driver": {"call": "cuInit", "code": 100, "name": "CUDA_ERROR_NO_DEVICE"}}}\n',
        "",
    )


def test_a_result_that_is_a_failure_has_both() -> None:
    status, out, err = emitted(answer(everything()), JSON)
    document = json.loads(out)
    assert (status, err, document["exit"], document["error"]["code"]) == (4, "", 4, "unreadable-cells")
    assert [cell["access"] for cell in document["data"]["rows"][0]["cells"]] == ["rw", "rw", "rw", "none", None]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("x" * 300, "x" * 300),
        ('quote " back \\ud800 \\', 'quote " back \\ud800 \\'),
        ("raw \udcf8\udcff", "raw \ufffd\ufffd"),
        ("halves \ud83d\ude00", "halves \ufffd\ufffd"),
        ("whole \U0001f600", "whole \U0001f600"),
        ("two\nlines \x1b[31m \x7f \u2028", "two\nlines \x1b[31m \x7f \u2028"),
    ],
)
def test_any_string_gives_a_document_that_strict_parsers_read(given: str, read: str) -> None:
    shown = AccessMatrix(devices=(device(0, name=given),), rows=(row(pool("p"), cell(0, "rw", owner=True)),))
    _, out, _ = emitted(answer(shown, failure=Problem(code="usage", message=given)), JSON)
    assert out.isascii()
    assert out.count("\n") == 1
    for document in (json.loads(out), msgspec.json.decode(out)):
        assert document["data"]["devices"][0]["name"] == read
        assert document["error"]["message"] == read


def documented() -> dict[str, dict[str, str]]:
    """Section -> field -> type, as docs/json.md has them."""
    sections: dict[str, dict[str, str]] = {}
    for title, text in re.findall(r"^##+ (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL):
        fields = re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", text, re.MULTILINE)
        if fields:
            assert title not in sections
            sections[title] = dict(fields)
    return sections


def spelled(hint: Any) -> str:
    """A type as docs/json.md spells it."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(spelled(arm) for arm in get_args(hint))
    if get_origin(hint) is tuple:
        return f"[{spelled(get_args(hint)[0])}]"
    if get_origin(hint) is Literal:
        return "string"
    names = {int: "number", float: "number", str: "string", bool: "boolean", type(None): "null"}
    return names.get(hint) or str(hint.__name__)


def structs() -> dict[str, type[msgspec.Struct]]:
    """Every type that can occur in a document."""
    found = {
        name: kind
        for module in (errors, model)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct
    }
    for name in ("Answer", "Result", "Event"):
        del found[name]
    return found


def test_the_page_names_every_type() -> None:
    assert set(documented()) == {"Envelope", *structs()}


@pytest.mark.parametrize("name", structs())
def test_the_page_agrees_with_the_model(name: str) -> None:
    kind = structs()[name]
    hints = get_type_hints(kind)
    fields = {field: spelled(hints[field]) for field in kind.__struct_fields__}
    if issubclass(kind, model.Result):
        del fields["warnings"]  # lifted into the envelope
    assert documented()[name] == fields


def test_the_page_agrees_with_the_envelope() -> None:
    assert list(documented()["Envelope"]) == list(model.envelope("probe", Answer(driver=CUDA)))


def test_every_result_belongs_to_a_command() -> None:
    for kind in get_args(AnyResult):
        assert re.search(rf"^### {kind.__name__}\n\n`[a-z-]+( [a-z]+)?`", PAGE, re.MULTILINE), kind
