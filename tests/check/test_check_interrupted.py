"""Ctrl-C in the middle of the checks: those that are done are shown, and no child is left."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest
import xmlschema
from cli.conftest import Done, Mempool
from cli.processes import interrupted

SCHEMA = Path(__file__).parent / "junit-10.xsd"


def test_while_the_driver_is_waited_for(mempool: Mempool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of an earlier, green run does not stay."""

    def interrupted_trial(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mempool_cli.survey.run_trial", interrupted_trial)
    file = tmp_path / "out.xml"
    file.write_text("<testsuites/>")
    done = mempool("--sim", "2", "check", "--select", "d*", "--junit", str(file))
    why = "ended by SIGINT: 0 of 3 checks are done, not driver, devices, data"
    assert done == Done(130, "", f"error: {why} [interrupted]\n")
    (error,) = ElementTree.parse(file).getroot().iter("error")
    assert error.get("message") == why


def test_before_anything_is_known(mempool: Mempool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the process is killed: the file of an earlier, green run is gone by then."""
    file = tmp_path / "out.xml"
    file.write_text("<testsuites/>")
    seen: list[str] = []

    def look(*_: object, **__: object) -> None:
        xmlschema.XMLSchema(SCHEMA).validate(file)
        seen.extend(error.get("message", "") for error in ElementTree.parse(file).getroot().iter("error"))
        raise KeyboardInterrupt

    monkeypatch.setattr("mempool_cli.survey.run_trial", look)
    mempool("--sim", "2", "check", "--junit", str(file))
    assert seen == ["the checks have not ended, or the process was killed"]


@pytest.mark.parametrize(
    ("number", "status", "code"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
@pytest.mark.parametrize("last", ["data", "recycled"])
def test_what_is_done_is_shown(tmp_path: Path, number: signal.Signals, status: int, code: str, last: str) -> None:
    file = tmp_path / "out.xml"
    words = ["--sim", "2,fault=hang", "--format", "json", "check", "--select", "devices", "--select", last]
    done = interrupted(number, *words, "--junit", str(file), first="1 of 2: devices: passed\n")
    found = json.loads(done.out)
    assert (done.status, found["error"]["code"]) == (status, code)
    assert [check["id"] for check in found["data"]["checks"]] == ["devices"]
    xmlschema.XMLSchema(SCHEMA).validate(file)
    suites = {suite.get("name"): suite for suite in ElementTree.parse(file).getroot()}
    assert list(suites) == ["mempool.devices", "mempool.run"]
    (error,) = suites["mempool.run"].iter("error")
    assert error.get("message") == f"ended by {number.name}: 1 of 2 checks are done, not {last}"
