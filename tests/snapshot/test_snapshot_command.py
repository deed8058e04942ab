"""`mempool snapshot` as users run it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Mempool, MempoolProcess

from mempool_cli import machine
from mempool_cli.doctor.findings import Facts
from mempool_cli.doctor.look import Look
from mempool_cli.doctor.nvml import Nvml
from mempool_cli.doctor.sources import Sources
from mempool_cli.errors import Problem
from mempool_cli.snapshot.compare import compare
from mempool_cli.snapshot.document import SCHEMA, Snapshot, read, text_of
from mempool_cli.snapshot.take import from_facts

FIRST = "GPU-6090f7d1-e4dd-57e6-9768-669dad3214b8"
SECOND = "GPU-e60664c9-5fa7-55d3-b3e9-2383ca5faf7d"


def taken(mempool: Mempool, *arguments: str) -> dict[str, Any]:
    status, out, err = mempool(*arguments)
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_machine(mempool: Mempool) -> None:
    found = taken(mempool, "--sim", "2", "snapshot")
    assert list(found) == list(Snapshot.__struct_fields__)
    assert (found["schema"], found["failure"], found["redacted"]) == (SCHEMA, None, False)
    assert found["driver"]["sim"] == "2"
    assert set(found["machine"].values()) == {None}
    assert [(device["uuid"], device["ordinal"], device["pci_bus_id"]) for device in found["devices"]] == [
        (FIRST, 0, "0000:01:00.0"),
        (SECOND, 1, "0000:03:00.0"),
    ]
    assert found["capability"][0] == {
        "accessor": FIRST,
        "owner": SECOND,
        "capable": True,
        "native_atomics": True,
        "performance_rank": 0,
        "nvml_read": None,
        "nvml_write": None,
        "nvml_atomics": None,
    }
    assert [(cell["owner"], cell["accessor"], cell["access"]) for cell in found["access"]] == [
        (FIRST, None, "none"),
        (FIRST, FIRST, "rw"),
        (FIRST, SECOND, "none"),
        (SECOND, None, "none"),
        (SECOND, FIRST, "none"),
        (SECOND, SECOND, "rw"),
    ]
    assert [finding["topic"] for finding in found["findings"]][:3] == ["cuInit", "devices", "pools"]


@pytest.mark.parametrize("spec", ["dgx-h200", "pcie-4", "mixed-4", "h100-cc", "asym-3", "no-p2p-2", "1"])
def test_simulated_machines(mempool: Mempool, spec: str) -> None:
    found = taken(mempool, "--sim", spec, "snapshot")
    count = len(found["devices"])
    assert (len(found["capability"]), len(found["access"])) == (count * (count - 1), count * (count + 1))


def test_it_is_pretty_json_whatever_the_format(mempool: Mempool) -> None:
    for arguments in (["--format", "table"], ["--format", "json"], []):
        out = mempool("--sim", "1", *arguments, "snapshot").out
        assert out.startswith('{\n "schema": "mempool-snapshot/1",\n')
        assert out.isascii()


def test_a_machine_that_cannot_is_a_snapshot_too(mempool: Mempool) -> None:
    found = taken(mempool, "--sim", "0", "snapshot")
    assert found["failure"]["code"] == "no-device"
    assert found["devices"] == []


def test_a_machine_without_a_driver(
    mempool_process: MempoolProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    status, out, err = mempool_process("snapshot")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert (found["failure"]["code"], found["driver"]) == ("no-driver", None)
    assert found["machine"]["kernel"]


def test_into_a_file(mempool: Mempool, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    assert mempool("--sim", "1", "snapshot", "-o", str(file)) == (0, "", "")
    assert json.loads(file.read_text())["schema"] == SCHEMA
    nowhere = tmp_path / "no"
    assert mempool("--sim", "1", "snapshot", "-o", str(nowhere / "machine.json")) == (
        74,
        "",
        f"error: {nowhere}/machine.json cannot be written: there is no directory {nowhere}; nothing was run [output]\n",
    )


@pytest.mark.parametrize("host", ["sim", "snapshot", "memory", "ok", "NVIDIA"])
def test_the_name_of_the_host_spoils_nothing_else(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    plain = taken(mempool, "--sim", "2", "snapshot", "--redact")
    monkeypatch.setattr("platform.node", lambda: host)
    found = taken(mempool, "--sim", "2", "snapshot", "--redact")
    assert (found["schema"], found["driver"]["kind"]) == (SCHEMA, "sim")
    for one, other in zip(found["findings"], plain["findings"], strict=True):
        assert [one[key] for key in ("topic", "level", "code")] == [other[key] for key in ("topic", "level", "code")]
    assert found["devices"][0]["name"] == ("(redacted) H200" if host == "NVIDIA" else "NVIDIA H200")


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("on gpu1, user@gpu1.example.com", "on (redacted), user@(redacted).example.com"),
        ("gpu10, mygpu1", "gpu10, mygpu1"),
        ("/scratch/gpu1_tmp:/net/gpu1-ib0:/my-gpu1", "/scratch/(redacted)_tmp:/net/(redacted)-ib0:/my-(redacted)"),
    ],
)
def test_the_name_of_the_host_is_a_whole_word(monkeypatch: pytest.MonkeyPatch, text: str, redacted: str) -> None:
    monkeypatch.setattr("platform.node", lambda: "gpu1")
    assert machine.redacted({"text": [text]}) == {"text": [redacted]}


def test_a_variable_that_is_no_utf8(tmp_path: Path) -> None:
    """A machine does not differ from itself."""
    look = Look(failure=Problem(code="no-driver", message="none"))
    now = from_facts(Facts(look, Sources(tmp_path, {"CUDA_VISIBLE_DEVICES": "GPU-\udcff\udce9"}), Nvml(absent=True)))
    file = tmp_path / "before.json"
    file.write_text(text_of(now, redact=False))
    assert compare(read(str(file)), now, old="a", new=None).changes == ()


def test_a_file_that_is_replaced_keeps_its_mode(mempool: Mempool, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    for mode in (0o600, 0o640):
        file.touch()
        file.chmod(mode)
        assert mempool("--sim", "1", "snapshot", "-o", str(file)) == (0, "", "")
        assert file.stat().st_mode & 0o777 == mode
    file.unlink()
    assert mempool("--sim", "1", "snapshot", "-o", str(file)).status == 0
    umask = os.umask(0)
    os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_redacted_it_tells_devices_apart_by_ordinal(mempool: Mempool) -> None:
    found = taken(mempool, "--sim", "2", "snapshot", "--redact")
    assert found["redacted"] is True
    assert [device["uuid"] for device in found["devices"]] == ["(redacted 0)", "(redacted 1)"]
    assert found["capability"][1]["accessor"] == "(redacted 1)"
    text = json.dumps(found)
    assert "GPU-" not in text
    assert "0000:01" not in text
