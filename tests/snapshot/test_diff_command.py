"""`mempool diff` as users run it: each change is named once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Done, Mempool
from cli.documents import document
from cli.machines import label

UUIDS = [f"{digit * 8}-0000-4000-8000-000000000000" for digit in "0123"]
A, B, C, D = (f"device {{}} (GPU-{uuid[:8]})" for uuid in UUIDS)


class Lab:
    """One machine file, written again and again, and snapshots of it."""

    def __init__(self, mempool: Mempool, directory: Path) -> None:
        self._mempool = mempool
        self._directory = directory
        self.spec = str(directory / "machine.toml")
        self.before = str(directory / "before.json")

    def build(self, cards: str = "0123", *, slots: str = "", pairs: str = "", head: str = "", more: str = "") -> None:
        """Cards by their digit, each in the slot of the same place in `slots`; `pairs`: `01 10`, else all."""
        places = slots or "4567"
        tables = [
            f'[[device]]\nuuid = "{UUIDS[int(card)]}"\npci_bus_id = "0000:{slot}1:00.0"\n'
            for card, slot in zip(cards, places, strict=False)
        ]
        listed = ", ".join(f"[{pair[0]}, {pair[1]}]" for pair in pairs.split())
        p2p = f"[p2p]\npairs = [{listed}]\n" if pairs else "[p2p]\nall = true\n"
        Path(self.spec).write_text(head + "".join(tables) + p2p + more)

    def snapshot(self, name: str = "before") -> str:
        file = str(self._directory / f"{name}.json")
        assert self._mempool("--sim", self.spec, "snapshot", "-o", file) == (0, "", "")
        return file

    def diff(self, *arguments: str) -> Done:
        return self._mempool("--sim", self.spec, *arguments, "diff", self.before)

    def changes(self) -> list[str]:
        """The lines that a user reads."""
        status, out, err = self.diff()
        lines = out.removeprefix(label(self.spec)).splitlines()
        assert status == 1
        assert err == f"error: {len(lines)} change{'s' * (len(lines) > 1)} since {self.before} [different]\n"
        return lines


@pytest.fixture
def lab(mempool: Mempool, tmp_path: Path) -> Lab:
    made = Lab(mempool, tmp_path)
    made.build()
    made.snapshot()
    return made


def test_nothing_changed(lab: Lab) -> None:
    assert lab.diff() == (0, label(lab.spec) + f"nothing changed since {lab.before}\n", "")
    found = document(lab.diff("--format", "json"))
    assert (found["data"]["old"], found["data"]["new"], found["data"]["changes"]) == (lab.before, None, [])


def test_one_link_is_gone(lab: Lab) -> None:
    every = [f"{a}{b}" for a in range(4) for b in range(4) if a != b]
    lab.build(pairs=" ".join(pair for pair in every if pair not in ("12", "21")))
    b, c = B.format(1), C.format(2)
    atomics = "; native_atomics: yes -> no"
    assert lab.changes() == [f"capability lost: {b} can no longer reach {c}, and {c} can no longer reach {b}{atomics}"]
    lab.build(pairs=" ".join(pair for pair in every if pair != "21"))
    assert lab.changes() == [f"capability lost: {c} can no longer reach {b}{atomics}"]


def test_a_link_is_new(lab: Lab, mempool: Mempool) -> None:
    lab.build(pairs="01 10")
    lab.snapshot()
    lab.build(pairs="01 10 32 23")
    c, d = C.format(2), D.format(3)
    atomics = "; native_atomics: no -> yes"
    assert lab.changes() == [f"capability gained: {c} can now reach {d}, and {d} can now reach {c}{atomics}"]
    change = document(lab.diff("--format", "json"))["data"]["changes"][0]
    assert change == {
        "kind": "capability",
        "device": f"GPU-{UUIDS[2]}",
        "owner": f"GPU-{UUIDS[3]}",
        "both_ways": True,
        "values": [
            {"name": "capability", "old": "no", "new": "yes"},
            {"name": "native_atomics", "old": "no", "new": "yes"},
        ],
    }


def test_a_card_in_another_slot(lab: Lab) -> None:
    lab.build(slots="4568")
    assert lab.changes() == [f"{D.format(3)} moved: pci_bus_id: 0000:71:00.0 -> 0000:81:00.0"]


def test_two_cards_swapped(lab: Lab) -> None:
    """Each once, and nothing of what they can reach: that goes with the card."""
    lab.build(pairs="01 10")
    lab.snapshot()
    lab.build("0321", pairs="03 30")
    assert lab.changes() == [
        f"{D.format(1)} moved: ordinal: 3 -> 1; pci_bus_id: 0000:71:00.0 -> 0000:51:00.0",
        f"{B.format(3)} moved: ordinal: 1 -> 3; pci_bus_id: 0000:51:00.0 -> 0000:71:00.0",
    ]


def test_a_card_replaced(lab: Lab) -> None:
    lab.build("012")
    lab.snapshot()
    lab.build("013")
    assert lab.changes() == [f"{C.format(2)} is gone", f"{D.format(2)} is new"]


def test_the_driver_changed(lab: Lab) -> None:
    lab.build(head="driver_version = 13010\n")
    assert lab.changes() == ["driver: cuda_version: 13.0 -> 13.1"]


def test_cuda_stopped_working(lab: Lab) -> None:
    lab.build(more='[[failure]]\ncall = "cuInit"\ncode = 802\n')
    assert lab.changes() == ["cuda: state: works -> no-driver: the CUDA driver does not start"]


def edited(lab: Lab, name: str, **parts: Any) -> str:
    """A snapshot of the same machine in which these parts are others."""
    found = json.loads(Path(lab.before).read_text())
    for key, value in parts.items():
        found[key] = {**found[key], **value} if isinstance(value, dict) else value
    file = Path(lab.before).with_name(f"{name}.json")
    file.write_text(json.dumps(found))
    return str(file)


def compared(mempool: Mempool, lab: Lab, old: str, new: str, status: int = 1) -> list[str]:
    """The lines that a user reads of two files, below the one that says that the new one is of a simulated machine."""
    done = mempool("diff", old, new)
    assert (done.status, done.out.startswith(label(lab.spec))) == (status, True)
    return done.out.removeprefix(label(lab.spec)).splitlines()


def test_two_files(lab: Lab, mempool: Mempool) -> None:
    """Facts that no simulated machine has; without --sim or hardware."""
    machine = {"iommu": "passthrough", "kernel_module": {"version": "570.1", "flavour": "open"}, "container": False}
    old = edited(lab, "old", machine=machine)
    module = {"version": "580.2", "flavour": "proprietary"}
    new = edited(lab, "new", machine={**machine, "iommu": "translated", "kernel_module": module, "container": True})
    assert mempool("diff", old, new) == (
        1,
        label(lab.spec)
        + """\
driver: kernel_module: 570.1 (open) -> 580.2 (proprietary)
machine: iommu: passthrough -> translated
machine: container: no -> yes
""",
        f"error: 3 changes since {old} [different]\n",
    )
    assert compared(mempool, lab, old, old, 0) == [f"nothing changed since {old}"]
    assert document(mempool("diff", old, old, "--format", "json"))["driver"]["sim"] == lab.spec


def test_a_simulated_machine_that_the_label_does_not_name(lab: Lab, mempool: Mempool, tmp_path: Path) -> None:
    """The label is that of the new one; what is simulated always says so."""
    new = tmp_path / "new.json"
    mempool("--sim", "2", "snapshot", "-o", str(new))
    done = mempool("diff", lab.before, str(new))
    warning = f"{lab.before} is of the simulated machine {lab.spec}: no hardware was asked for it [simulated]"
    assert done.err.splitlines()[0] == f"warning: {warning}"
    assert done.out.startswith(label("2"))


def test_access_of_a_default_pool(lab: Lab, mempool: Mempool) -> None:
    found = json.loads(Path(lab.before).read_text())["access"]
    found[2]["access"] = "rw"
    new = edited(lab, "new", access=found)
    a, b = A.format(0), B.format(1)
    assert compared(mempool, lab, lab.before, new) == [f"access of {b} to the default pool of {a}: none -> rw"]
    for access, words in ((None, "not known"), ("unknown", "unknown")):
        found[2]["access"] = access
        (change,) = compared(mempool, lab, lab.before, edited(lab, "new", access=found))
        assert change == f"access of {b} to the default pool of {a}: none -> {words}"


def test_a_card_that_is_another_inside(lab: Lab, mempool: Mempool) -> None:
    devices = json.loads(Path(lab.before).read_text())["devices"]
    devices[0] |= {"nvml_index": 0}
    old = edited(lab, "old", devices=devices)
    devices[0] |= {"name": "NVIDIA [bold]X", "compute_mode": 2, "mig": True}
    assert compared(mempool, lab, old, edited(lab, "new", devices=devices)) == [
        f"{A.format(0)} changed: name: NVIDIA H200 -> NVIDIA [bold]X; compute_mode: 0 -> 2; mig: - -> yes"
    ]


def with_nvml(lab: Lab, name: str, status: str | None = "OK") -> str:
    """The same machine, where nvidia-ml-py is installed."""
    found = json.loads(Path(lab.before).read_text())
    devices = [device | {"nvml_index": device["ordinal"], "persistence": True} for device in found["devices"]]
    capability = [pair | {"nvml_read": status, "nvml_write": "OK"} for pair in found["capability"]]
    return edited(lab, name, devices=devices, capability=capability)


def test_what_nvml_was_not_asked_is_no_change(lab: Lab, mempool: Mempool) -> None:
    asked = with_nvml(lab, "asked")
    for old, new in ((lab.before, asked), (asked, lab.before)):
        assert compared(mempool, lab, old, new, 0) == [f"nothing changed since {old}"]
    changes = compared(mempool, lab, asked, with_nvml(lab, "new", "NOT_SUPPORTED"))
    assert len(changes) == 6  # both ways
    a, b = A.format(0), B.format(1)
    back = "and the other way round"
    assert changes[0] == f"capability changed: {a} with memory of {b}, {back}: nvml_read: OK -> NOT_SUPPORTED"
    silent = compared(mempool, lab, asked, with_nvml(lab, "new", None))
    assert silent[0] == f"capability changed: {a} with memory of {b}, {back}: nvml_read: OK -> not known"


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("native_atomics", False, "yes -> no"),
        ("native_atomics", None, "yes -> not known"),
        ("performance_rank", 1, "0 -> 1"),
    ],
)
def test_all_that_is_recorded_of_a_pair(lab: Lab, mempool: Mempool, key: str, value: object, shown: str) -> None:
    capability = json.loads(Path(lab.before).read_text())["capability"]
    capability[0][key] = value
    changes = compared(mempool, lab, lab.before, edited(lab, "new", capability=capability))
    assert changes == [f"capability changed: {A.format(0)} with memory of {B.format(1)}: {key}: {shown}"]


def test_a_pair_that_only_one_file_has(lab: Lab, mempool: Mempool) -> None:
    found = json.loads(Path(lab.before).read_text())
    less = edited(lab, "less", capability=found["capability"][1:], access=found["access"][1:])
    a, b = A.format(0), B.format(1)
    values = ("yes", "yes", "0", "none")
    for old, new, arrow in ((lab.before, less, "{} -> not known"), (less, lab.before, "not known -> {}")):
        capable, atomics, rank, access = (arrow.format(value) for value in values)
        assert compared(mempool, lab, old, new) == [
            f"capability changed: {a} with memory of {b}:"
            f" capability: {capable}; native_atomics: {atomics}; performance_rank: {rank}",
            f"access of the host to the default pool of {a}: {access}",
        ]
    with_no_pair = edited(lab, "none", capability=[], access=[])
    assert mempool("diff", lab.before, with_no_pair).status == 1


def test_cuda_starts_in_neither(lab: Lab, mempool: Mempool) -> None:
    lab.build(more='[[failure]]\ncall = "cuInit"\ncode = 802\n')
    lab.snapshot()
    assert lab.diff() == (
        6,
        label(lab.spec) + f"nothing changed since {lab.before}, of what could be compared: the devices could not\n",
        "error: CUDA does not start in either: no device was compared [inconclusive]\n"
        f"  try: `mempool --sim {lab.spec} doctor` says why\n",
    )
    assert document(lab.diff("--format", "json"))["data"]["devices_compared"] is False
    two = mempool("diff", lab.before, lab.before)
    assert (two.status, two.err) == (
        6,
        "error: CUDA does not start in either: no device was compared [inconclusive]\n",
    )


def test_a_variable_that_is_empty_and_one_that_is_not_set(lab: Lab, mempool: Mempool) -> None:
    old, new = (edited(lab, name, machine={"cuda_visible_devices": value}) for name, value in (("a", ""), ("b", None)))
    assert compared(mempool, lab, old, new) == ["machine: cuda_visible_devices: '' -> -"]


# --- files that are none ---


def refused(mempool: Mempool, file: str) -> str:
    found = document(mempool("diff", file, "--format", "json"))
    assert (found["exit"], found["error"]["code"]) == (2, "input-file")
    assert found["error"]["message"].startswith(f"{file}: ") or "cannot read" in found["error"]["message"]
    message: str = found["error"]["message"]
    return message.removeprefix(f"{file}: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON: "),
        ("[" * 100_000, "not JSON: "),
        ("[]", "there is no schema in it, and not 'mempool-snapshot/1'"),
        ('{"schema": 1}', "there is no schema in it, and not 'mempool-snapshot/1'"),
        ('{"schema": "mempool/1"}', "schema: 'mempool/1', and not 'mempool-snapshot/1'"),
        ('{"schema": "mempool-snapshot/0"}', "schema: 'mempool-snapshot/0', and not 'mempool-snapshot/1'"),
        ('{"schema": "mempool-snapshot/1"}', "key mempool is missing"),
    ],
)
def test_a_file_that_is_no_snapshot(mempool: Mempool, tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "machine.json"
    file.write_text(content)
    assert refused(mempool, str(file)).startswith(message)


def test_a_file_that_is_not_there(mempool: Mempool, tmp_path: Path) -> None:
    file = str(tmp_path / "none.json")
    assert mempool("diff", file) == (
        2,
        "",
        f"error: cannot read {file}: No such file or directory [input-file]\n"
        "  try: `mempool snapshot -o FILE` writes one\n",
    )
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    assert refused(mempool, str(tmp_path / "binary.json")) == f"cannot read {tmp_path}/binary.json: it is no UTF-8 text"


def test_a_snapshot_with_a_wrong_key(lab: Lab, mempool: Mempool) -> None:
    devices = json.loads(Path(lab.before).read_text())["devices"]
    wrong = edited(lab, "wrong", devices=[devices[0] | {"ordinal": "first"}])
    assert refused(mempool, wrong) == "devices[0].ordinal: Expected `int`, got `str`"
    twice = edited(lab, "twice", devices=[devices[0], devices[0]])
    assert refused(mempool, twice) == f"devices: 2 have the UUID GPU-{UUIDS[0]}"
    pair = json.loads(Path(lab.before).read_text())["capability"][0]
    twice = edited(lab, "twice", capability=[pair, pair | {"capable": False}])
    assert refused(mempool, twice) == f"capability: 2 have accessor GPU-{UUIDS[0]} and owner GPU-{UUIDS[1]}"
    cell = json.loads(Path(lab.before).read_text())["access"][0]
    twice = edited(lab, "twice", access=[cell, cell])
    assert refused(mempool, twice) == f"access: 2 have accessor host and owner GPU-{UUIDS[0]}"


def test_a_file_without_an_end(mempool: Mempool) -> None:
    assert refused(mempool, "/dev/zero") == "cannot read /dev/zero: it has more than 64 MiB"


def test_a_snapshot_of_a_later_release_has_more(lab: Lab, mempool: Mempool) -> None:
    later = edited(lab, "later", machine={"colour": "red"}, weather="fine")
    assert mempool("diff", lab.before, later).status == 0


def test_a_redacted_snapshot(lab: Lab, mempool: Mempool, tmp_path: Path) -> None:
    file = str(tmp_path / "redacted.json")
    assert mempool("--sim", lab.spec, "snapshot", "--redact", "-o", file).status == 0
    assert refused(mempool, file) == "redacted: its devices cannot be told apart by UUID"


def test_pairs_of_unknown_devices_are_no_crash(lab: Lab, mempool: Mempool) -> None:
    capability = json.loads(Path(lab.before).read_text())["capability"]
    old = edited(lab, "old", capability=[capability[0] | {"owner": "GPU-unheard-of"}])
    new = edited(lab, "new", capability=[capability[0] | {"owner": "GPU-unheard-of", "capable": None}])
    where = f"{A.format(0)} with memory of device ? (GPU-unheard-)"
    assert compared(mempool, lab, old, new) == [f"capability changed: {where}: capability: yes -> not known"]
