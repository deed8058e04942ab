"""Which cards there are, and by which names: what CUDA_VISIBLE_DEVICES and the order of cards do to a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Mempool
from .documents import document

UNKNOWN = "GPU-ffffffff-0000-0000-0000-000000000000"
CASES = [
    ("", 100, "CUDA_ERROR_NO_DEVICE"),
    ("0,0", 101, "CUDA_ERROR_INVALID_DEVICE"),
    (UNKNOWN, 100, "CUDA_ERROR_NO_DEVICE"),
    ("7", 100, "CUDA_ERROR_NO_DEVICE"),
    ("none\x1b[31m", 100, "CUDA_ERROR_NO_DEVICE"),
]


@pytest.mark.parametrize(("value", "code", "name"), CASES)
@pytest.mark.parametrize(
    "arguments", [("devices",), ("probe", "--matrix"), ("grant", "0", "--to", "1"), ("create", "0")]
)
def test_no_usable_device(
    mempool: Mempool,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    value: str,
    code: int,
    name: str,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert mempool("--sim", "2", *arguments) == (
        3,
        "",
        "SIMULATED machine 2: no hardware was asked\n"
        f"error: no usable CUDA device; CUDA_VISIBLE_DEVICES={value!r} [no-device]\n"
        f"  driver: cuInit = {name} ({code})\n"
        "  try: set CUDA_VISIBLE_DEVICES to ordinals or UUIDs of this machine, or unset it\n",
    )
    found = document(mempool("--sim", "2", "--format", "json", *arguments))
    assert found["driver"]["sim"] == "2"
    assert found["error"] == {
        "code": "no-device",
        "message": f"no usable CUDA device; CUDA_VISIBLE_DEVICES={value!r}",
        "hint": "set CUDA_VISIBLE_DEVICES to ordinals or UUIDs of this machine, or unset it",
        "driver": {"call": "cuInit", "code": code, "name": name},
    }
    assert mempool("--sim", "2", "session", "list").out == "no session runs\n"


def test_a_machine_without_devices(mempool: Mempool) -> None:
    assert mempool("--sim", "0", "devices") == (
        3,
        "",
        "SIMULATED machine 0: no hardware was asked\n"
        "error: no usable CUDA device [no-device]\n"
        "  driver: cuInit = CUDA_ERROR_NO_DEVICE (100)\n"
        "  try: this simulated machine has no device; `--sim 4` has four\n",
    )


@pytest.fixture
def reordered(tmp_path: Path) -> str:
    """A machine whose ordinals go against its bus ids, as CUDA's order by speed does."""
    file = tmp_path / "order.toml"
    cards = [("Fast", "0000:c1:00.0", "a"), ("Slow", "0000:41:00.0", "b"), ("Slow", "0001:41:00.0", "c")]
    file.write_text(
        "".join(
            f'[[device]]\nname = "{name}"\npci_bus_id = "{bus}"\nuuid = "{digit * 32}"\n' for name, bus, digit in cards
        )
        + "[p2p]\nall = true\n"
    )
    return str(file)


def uuid(digit: str) -> str:
    return "GPU-" + "-".join(digit * length for length in (8, 4, 4, 4, 12))


def test_every_listing_shows_all_three_names(mempool: Mempool, reordered: str) -> None:
    devices = f"""\
device  name  bus id        uuid                                    {{0}}
0       Fast  0000:c1:00.0  {uuid("a")}{{1}}
1       Slow  0000:41:00.0  {uuid("b")}{{2}}
2       Slow  0001:41:00.0  {uuid("c")}{{3}}
"""
    listed = devices.format(
        "  pools  host pools  peers", *(f"  yes    yes         {p}" for p in ("1-2", "0, 2", "0-1"))
    )
    assert mempool("--sim", reordered, "devices").out.partition("\n")[2] == listed
    legend = "\n".join(line.rstrip() for line in devices.format("", "", "", "").splitlines())
    assert legend in mempool("--sim", reordered, "probe", "--matrix").out
    shown = mempool("--sim", reordered, "show", "0").out
    assert f"1       none    Slow  0000:41:00.0  {uuid('b')}\n" in shown
    data = document(mempool("--sim", reordered, "probe", "--format", "json"))["data"]["devices"]
    assert [(device["ordinal"], device["pci_bus_id"], device["uuid"]) for device in data] == [
        (0, "0000:c1:00.0", uuid("a")),
        (1, "0000:41:00.0", uuid("b")),
        (2, "0001:41:00.0", uuid("c")),
    ]


@pytest.mark.parametrize(
    ("word", "device"),
    [
        ("1", 1),
        ("GPU-bbbb", 1),
        ("gpu-BBBBBBBB-bb", 1),
        (uuid("c"), 2),
        ("0000:41:00.0", 1),
        ("41:00", 1),
        ("00000000:41:00.0", 1),
        ("00000001:41:00.0", 2),
        ("0001:41:00", 2),
    ],
)
def test_every_name_is_taken(mempool: Mempool, reordered: str, word: str, device: int) -> None:
    data = document(mempool("--sim", reordered, "--format", "json", "grant", "0", "--to", word, "--dry-run"))["data"]
    assert data["granted"] == [device]


@pytest.mark.parametrize("word", ["GPU-bbbb", "0000:41:00.0", "00000000:41:00.0"])
def test_every_name_places_a_pool(mempool: Mempool, reordered: str, word: str) -> None:
    done = mempool("--sim", reordered, "--no-session", "--format", "json", "create", word)
    assert document(done)["data"]["pool"]["owner"] == 1


def test_visible_devices_are_the_driver_s_business(
    mempool: Mempool, monkeypatch: pytest.MonkeyPatch, reordered: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{uuid('c')[:8]},0,9,1")
    data = document(mempool("--sim", reordered, "--format", "json", "devices"))["data"]["devices"]
    assert [(device["ordinal"], device["uuid"]) for device in data] == [(0, uuid("c")), (1, uuid("a"))]
    assert "no visible device is GPU-bbbb" in mempool("--sim", reordered, "grant", "0", "--to", "GPU-bbbb").err
