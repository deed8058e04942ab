"""Ctrl-C and SIGTERM in the middle: what was found so far, and no child left."""

from __future__ import annotations

import json
import re
import signal

import pytest
from cli.conftest import Done
from cli.processes import asleep, interrupted

VERIFY = ["verify", "--owner", "0", "2", "--accessor", "1", "--jobs", "1", "--size", "8"]
FIRST = "1 of 2: device 1 with memory of device 0: ok\n"


def in_its_second_pair(number: signal.Signals, *options: str) -> Done:
    """A run that is ended in its second pair, which hangs."""
    return interrupted(number, "--sim", "3,fault=hang:2-1", *options, *VERIFY, first=FIRST, at=asleep)


@pytest.mark.parametrize(
    ("number", "status", "name", "code"),
    [(signal.SIGINT, 130, "SIGINT", "interrupted"), (signal.SIGTERM, 143, "SIGTERM", "terminated")],
)
def test_what_was_found_so_far(number: signal.Signals, status: int, name: str, code: str) -> None:
    ended, out, err = in_its_second_pair(number)
    assert ended == status
    said = f"error: ended by {name}: 1 of 2 pairs are known; device 1 with memory of device 2 was in cu"
    assert re.fullmatch(re.escape(said) + rf"\w+\(.*\) \[{code}\]\n", err)
    assert "\nowner  1\n0      ok\n" in out


def test_as_a_document() -> None:
    ended, out, err = in_its_second_pair(signal.SIGINT, "--format", "json")
    found = json.loads(out)
    assert (ended, err, found["exit"], found["error"]["code"]) == (130, "", 130, "interrupted")
    assert (found["data"]["planned"], [pair["verdict"] for pair in found["data"]["pairs"]]) == (2, ["ok"])
