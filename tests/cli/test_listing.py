"""`mempool list`, `show` and `devices` on every machine, and the JSON document of every command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mempool_cli.driver.sim.profile import profile_names

from .conftest import Mempool
from .machines import FRESH, SEEN, STARTED, label

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")


def test_devices_with_all_their_names(mempool: Mempool) -> None:
    assert mempool("--sim", "mixed-4", "devices") == (
        0,
        label("mixed-4")
        + """\
device  name                   bus id        uuid                                      pools  host pools  peers
0       NVIDIA A100-PCIE-40GB  0000:01:00.0  GPU-6090f7d1-e4dd-57e6-9768-669dad3214b8  yes    yes         1, 3
1       NVIDIA A100-PCIE-40GB  0000:03:00.0  GPU-e60664c9-5fa7-55d3-b3e9-2383ca5faf7d  yes    yes         0, 3
2       Tesla K40c             0000:05:00.0  GPU-ddd6ede9-f2b5-5396-a65b-2b9452a400eb  no     no          -
3       NVIDIA A100-PCIE-40GB  0000:07:00.0  GPU-1b425078-55a2-5f85-a8c2-bfa69abc09bb  yes    yes         0-1
""",
        "",
    )


def test_list_shows_what_the_process_holds(mempool: Mempool) -> None:
    assert mempool("--sim", "mixed-4", "list") == (
        0,
        label("mixed-4") + """\
pool       kind             on  used  reserved  threshold  max size
default:0  default,current  0   0 B   0 B       0 B        -
default:1  default,current  1   0 B   0 B       0 B        -
default:2  default          2   -     -         -          -
default:3  default,current  3   0 B   0 B       0 B        -

""" + FRESH,
        "",
    )  # fmt: skip
    mempool("--sim", "mixed-4", "create", "numa:0", "--name", "n", "--max-size", "1MB")
    mempool("--sim", "mixed-4", "create", "3", "--release-threshold", "18446744073709551615")
    assert mempool("--sim", "mixed-4", "list").out.splitlines()[6:] == [
        "n          created          numa:0  0 B   0 B       0 B        976.6 KiB",
        "pool-1     created          3       0 B   0 B       keep all   driver default",
        "",
        SEEN.strip(),
    ]


def test_show_has_attributes_and_a_line_a_device(mempool: Mempool) -> None:
    mempool("--sim", "pcie-4", "create", "0", "--name", "a", "--max-size", "2GiB", "--to", "1")
    assert mempool("--sim", "pcie-4", "show", "a") == (
        0,
        label("pcie-4") + """\
pool                               a
kind                               created
on                                 device 0
made by                            mempool
max size                           2 GiB
reuse_follow_event_dependencies    on
reuse_allow_opportunistic          on
reuse_allow_internal_dependencies  on
release_threshold                  0 B
reserved_mem_current               0 B
reserved_mem_high                  0 B
used_mem_current                   0 B
used_mem_high                      0 B

device  access       name              bus id        uuid
0       owner        NVIDIA RTX A6000  0000:01:00.0  GPU-6090f7d1-e4dd-57e6-9768-669dad3214b8
1       RW           NVIDIA RTX A6000  0000:03:00.0  GPU-e60664c9-5fa7-55d3-b3e9-2383ca5faf7d
2       not capable  NVIDIA RTX A6000  0000:05:00.0  GPU-ddd6ede9-f2b5-5396-a65b-2b9452a400eb
3       not capable  NVIDIA RTX A6000  0000:07:00.0  GPU-1b425078-55a2-5f85-a8c2-bfa69abc09bb
host    none         -                 -             -

""" + SEEN,
        "",
    )  # fmt: skip


@pytest.mark.parametrize("spec", [*profile_names(), "1", "9"])
def test_every_machine_can_be_looked_at(mempool: Mempool, spec: str) -> None:
    done = mempool("--sim", spec, "devices")
    devices = len(done.out.splitlines()) - 2
    assert (done.status, done.err) == (0, "")
    for command, lines in (("list", devices + 5), ("probe", devices + 5)):
        done = mempool("--sim", spec, command)
        assert (done.status, done.err, len(done.out.splitlines())) == (0, "", lines)
    done = mempool("--sim", spec, "show", "0")
    assert (done.status, done.err, len(done.out.splitlines())) == (0, "", devices + 20)
    matrix = mempool("--sim", spec, "probe", "--matrix").out.splitlines()[2 : 2 + devices]
    own = [line.split()[4 + row] for row, line in enumerate(matrix)]
    assert own == ["n/s" if spec == "mixed-4" and row == 2 else "own" for row in range(devices)]


def test_a_card_with_odd_characters_in_its_name(mempool: Mempool, tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    file.write_text('[[device]]\nname = "NVIDIA [bold]X :ab: \\u001b[31m\\n"\n')
    for command in (["devices"], ["show", "0"], ["probe", "--matrix"]):
        assert r"NVIDIA [bold]X :ab: \x1b[31m\n  0000:01:00.0" in mempool("--sim", str(file), *command).out


# --- the document ---


def sections() -> dict[str, dict[str, str]]:
    """Type -> field -> type, as docs/json.md has them."""
    found = re.findall(r"^##+ (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return {title: dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", text, re.MULTILINE)) for title, text in found}


def data_of(command: str) -> str:
    """The type of a command's `data`."""
    for title, line in re.findall(r"^### (\w+)\n\n(`.*)$", PAGE, re.MULTILINE):
        if f"`{command}`" in line:
            return str(title)
    raise AssertionError(command)


TYPES = sections()
PLAIN: dict[str, type] = {"string": str, "number": int, "boolean": bool, "null": type(None)}


def check(value: Any, spelled: str, where: str) -> None:
    """That a value is what the page says it is."""
    if spelled.endswith(" or null"):
        if value is None:
            return
        spelled = spelled.removesuffix(" or null")
    if spelled.startswith("["):
        assert isinstance(value, list), where
        for position, item in enumerate(value):
            check(item, spelled[1:-1], f"{where}[{position}]")
    elif spelled in PLAIN:
        assert type(value) is PLAIN[spelled], (where, value)
    elif spelled == "object":
        assert isinstance(value, dict), where
    else:
        assert list(value) == list(TYPES[spelled]), where
        for key, item in value.items():
            check(item, TYPES[spelled][key], f"{where}.{key}")


def document(mempool: Mempool, *arguments: str, status: int = 0) -> dict[str, Any]:
    """The document of a command, checked against the page."""
    done = mempool(*arguments, "--format", "json")
    assert (done.status, done.err.removeprefix(STARTED), done.out.count("\n")) == (status, "", 1)
    found: dict[str, Any] = json.loads(done.out)
    check(found, "Envelope", "document")
    assert (found["schema"], found["exit"], found["ok"]) == ("mempool/1", status, status == 0)
    assert (found["error"] is None) is (status == 0)
    if found["data"] is not None:
        check(found["data"], data_of(found["command"]), found["command"])
    return found


def test_every_command_has_the_document_of_the_page(mempool: Mempool) -> None:
    four = ("--sim", "4")
    created = document(mempool, *four, "create", "0", "--name", "a", "--to", "1", "--max-size", "1MiB")
    assert created["data"]["granted"] == [1]
    assert (created["driver"]["kind"], created["driver"]["sim"]) == ("sim", "4")
    assert (created["where"]["kind"], created["where"]["name"]) == ("session", "default")
    granted = document(mempool, *four, "grant", "a", "--to", "2", "0", "1")["data"]
    cells = granted.pop("cells")
    assert granted == {
        "pool": {"name": "a", "roles": ["created"], "location": "0", "owner": 0},
        "granted": [2],
        "revoked": [],
        "unchanged": [1],
        "owner_skipped": True,
        "set_access_calls": 1,
        "dry_run": False,
        "unknown": [],
    }
    assert [cell["access"] for cell in cells] == ["rw", "rw", "rw", "none"]
    assert cells[3] == {"device": 3, "access": "none", "flags": 0, "owner": False, "capable": True, "error": None}
    revoked = document(mempool, *four, "revoke", "a", "--from", "1", "--dry-run")["data"]
    assert (revoked["revoked"], revoked["set_access_calls"], revoked["dry_run"]) == ([1], 0, True)
    current = document(mempool, *four, "set-current", "a")["data"]
    assert (current["device"], current["pool"]["name"], current["previous"]["name"]) == (0, "a", "default:0")
    listed = document(mempool, *four, "list")["data"]["pools"]
    assert [entry["max_size"] for entry in listed] == [None, None, None, None, 1 << 20]
    shown = document(mempool, *four, "show", "a")["data"]
    assert [entry["name"] for entry in shown["attributes"]][3] == "release_threshold"
    probed = document(mempool, *four, "probe", "--matrix")
    assert (probed["command"], len(probed["data"]["rows"]), len(probed["data"]["devices"])) == ("probe", 5, 4)
    assert probed["data"]["rows"][4]["host"]["device"] is None
    devices = document(mempool, *four, "devices")["data"]["devices"]
    assert [device["peers"] for device in devices] == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert document(mempool, *four, "session", "status")["data"]["session"]["pools"] == ["a"]
    assert len(document(mempool, *four, "session", "list")["data"]["sessions"]) == 1
    assert document(mempool, *four, "session", "start")["data"]["started_now"] is False
    destroyed = document(mempool, *four, "destroy", "a")
    assert destroyed["data"]["destroyed"][0]["cleared"] == [1, 2]
    assert [warning["code"] for warning in destroyed["warnings"]] == ["current-pool-reset"]
    assert document(mempool, *four, "session", "stop")["data"]["killed"] is False


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["--sim", "4", "grant", "0", "--to"], 2, "usage"),
        (["--sim", "4", "grant", "0", "--to", "9"], 2, "unknown-device"),
        (["--sim", "no-p2p-2", "grant", "0", "--to", "1"], 3, "not-peer-capable"),
        (["--sim", "nope", "devices"], 2, "usage"),
        (["--sim", "./missing.toml", "list"], 2, "input-file"),
        (["--sim", "4", "revoke", "0", "--from", "1"], 5, "no-session"),
        (["--sim", "4", "session", "stop"], 5, "no-session"),
        (["--sim", "4", "create", "numa:9"], 4, "driver-refused"),
    ],
)
def test_every_failure_has_the_document_of_the_page(
    mempool: Mempool, arguments: list[str], status: int, code: str
) -> None:
    found = document(mempool, *arguments, status=status)
    assert (found["error"]["code"], found["data"]) == (code, None)
    assert found["command"] == " ".join(word for word in arguments[2:4] if word in ("session", "stop")) or arguments[2]


def test_a_warning_and_a_refusal_are_in_the_document(mempool: Mempool) -> None:
    forced = document(mempool, "--sim", "no-p2p-2", "--no-session", "grant", "0", "--to", "1", "--force")
    assert [warning["code"] for warning in forced["warnings"]] == ["granted-without-p2p"]
    assert (forced["where"]["kind"], forced["where"]["name"], forced["where"]["expires"]) == ("local", None, None)
    assert forced["data"]["cells"][1] == {
        "device": 1,
        "access": "rw",
        "flags": 3,
        "owner": False,
        "capable": False,
        "error": None,
    }
