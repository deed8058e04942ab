"""`mempool check` on simulated machines: what a user and a CI server see."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema
from cli.conftest import Done, Mempool
from cli.machines import FOUR, failure, label, machine
from msgspec import structs
from repro.trials_helper import run_here
from standin.stand_in import StandIn, compile_c

from mempool_cli.child import Outcome

SCHEMA = Path(__file__).parent / "junit-10.xsd"
IDS = ["driver", "devices", "pools", "capability", "fresh", "owner", "grant", "batch", "recycled"]
PROFILES = ["1", "2", "asym-3", "dgx-h200", "h100-cc", "h200", "mixed-4", "no-p2p-2", "pcie-4"]
QUICK = ("--skip", "recycled")
ALL_PASSED = (
    "passed: driver, devices, pools (8), capability (56), fresh (8), owner (8), grant (64), batch (64), recycled (2)\n"
)
CAPABLE = "(cuDeviceCanAccessPeer)"


def of(mempool: Mempool, spec: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit status, and the checks by their id."""
    done = mempool("--sim", spec, "--format", "json", "check", *arguments)
    found = json.loads(done.out)
    assert found["exit"] == done.status
    return done.status, {check["id"]: check for check in found["data"]["checks"]}


def cases(check: dict[str, Any], outcome: str) -> dict[str, str]:
    """The cases that ended so, with the reason."""
    return {case["name"]: case["why"] for case in check["cases"] if case["outcome"] == outcome}


def lost(*pairs: tuple[int, int]) -> dict[str, str]:
    """The cases of pairs, accessor and owner, that a policy wants and that are not capable."""
    why = f"the accessor cannot reach the owner {CAPABLE}, the policy says it must be"
    return {f"device {accessor} with memory of device {owner}": why for accessor, owner in pairs}


def policy(mempool: Mempool, directory: Path, spec: str) -> Path:
    """The policy that the machine prints of itself."""
    done = mempool("--sim", spec, "check", "--init")
    assert (done.status, done.err) == (0, "")
    file = directory / "policy.toml"
    file.write_text(done.out)
    return file


# --- without a policy ---


def test_a_good_machine(mempool: Mempool) -> None:
    done = mempool("--sim", "dgx-h200", "check")
    steps = "".join(f"{number} of 9: {name}: passed\n" for number, name in enumerate(IDS, 1))
    assert done == Done(0, label("dgx-h200") + ALL_PASSED, steps)


def test_a_bug_fails_its_check_alone(mempool: Mempool) -> None:
    spec = "dgx-h200,fault=recycled-handle"
    done = mempool("--sim", spec, "check")
    why = "pools on a device: none, never-allocated: access was inherited by 75 of 75"
    passed = ALL_PASSED.replace("recycled (2)", "recycled (1)")
    bad = f"failed: recycled: a recycled pool handle inherits no access (nvbug 5698116)\n  {why}\n"
    assert (done.status, done.out) == (1, label(spec) + bad + passed)
    assert done.err.endswith(f"error: 1 of 9 checks failed: recycled: {why} [check-failed]\n")


@pytest.mark.usefixtures("here")
def test_one_device_has_no_pair(mempool: Mempool) -> None:
    status, found = of(mempool, "1", *QUICK)
    assert status == 6
    assert {name: check["outcome"] for name, check in found.items()} == {
        **dict.fromkeys(IDS[:-1], "passed"),
        "capability": "skipped",
    }
    for name in ("capability", "grant", "batch"):
        assert cases(found[name], "skipped") == {"pairs of devices": "one device: there is no pair"}
    assert cases(found["grant"], "passed") == {"device 0 with memory of the host": "granted and revoked"}
    done = mempool("--sim", "1", "check", *QUICK)
    assert done.err.endswith(
        "error: 3 cases of pair checks could not be run: capability: pairs of devices: one device: there is no pair"
        " [inconclusive]\n  try: --allow-skips, or a policy that says what this machine should be"
        " (`mempool --sim 1 check --init`)\n"
    )
    assert mempool("--sim", "1", "check", "--allow-skips", *QUICK).status == 0


@pytest.mark.parametrize(
    ("spec", "check", "skipped"),
    [
        ("pcie-4", "capability", 8),
        ("pcie-4", "grant", 8),
        ("h100-cc", "batch", 56),
        ("asym-3", "capability", 3),
        ("no-p2p-2", "grant", 2),
    ],
)
@pytest.mark.usefixtures("here")
def test_pairs_out_of_reach_are_gaps(mempool: Mempool, spec: str, check: str, skipped: int) -> None:
    status, found = of(mempool, spec, "--select", check)
    assert status == 6
    whys = list(cases(found[check], "skipped").values())
    assert whys == [f"the accessor cannot reach the owner {CAPABLE}"] * skipped


@pytest.mark.usefixtures("here")
def test_capability_has_a_direction(mempool: Mempool) -> None:
    _, found = of(mempool, "asym-3", "--select", "capability")
    assert set(cases(found["capability"], "passed")) == {
        "device 1 with memory of device 0",
        "device 0 with memory of device 2",
        "device 2 with memory of device 0",
    }


@pytest.mark.usefixtures("here")
def test_a_card_without_pools(mempool: Mempool) -> None:
    status, found = of(mempool, "mixed-4", *QUICK)
    assert status == 1
    assert cases(found["pools"], "failed") == {"device 2": "Tesla K40c has no memory pools"}
    assert cases(found["grant"], "skipped") == {"pairs of device 2": "device 2 has no memory pools"}
    assert len(cases(found["grant"], "passed")) == 6 + 3


@pytest.mark.parametrize(("number", "status"), [("4", 0), ("5", 1)])
@pytest.mark.usefixtures("here")
def test_devices_are_required(mempool: Mempool, number: str, status: int) -> None:
    done = mempool("--sim", "4", "check", "--select", "devices", "--require-devices", number)
    assert done.status == status
    if status:
        assert f"  required: 4 visible, at least {number} required\n" in done.out


@pytest.mark.parametrize(
    "words",
    [["--skip", "d*"], ["--select", "grant"], ["policy.toml"]],
)
def test_required_devices_are_not_left_out(
    mempool: Mempool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.toml").write_text('[checks]\nskip = ["devices"]\n')
    assert mempool("--sim", "2", "check", "--require-devices", "8", *words) == Done(
        2,
        "",
        "error: --require-devices wants the check devices, which --select, --skip or the policy leaves out [usage]\n",
    )


def test_data_too(mempool: Mempool) -> None:
    done = mempool("--sim", "2,fault=mirror:0-1", "check", "--select", "driver", "--data")
    assert done.status == 1
    why = "mirror: kernel-write, grant-first: the writer sees its own data, the owner does not"
    assert f"failed: data: data gets through (mempool verify)\n  device 1 with memory of device 0: {why}\n" in done.out
    assert "passed: driver, data (3)\n" in done.out


@pytest.mark.usefixtures("here")
def test_no_driver_and_no_device(mempool: Mempool) -> None:
    status, found = of(mempool, "0")
    assert status == 1
    assert cases(found["driver"], "failed") == {"cuInit": "no usable CUDA device"}
    assert {check["outcome"] for name, check in found.items() if name != "driver"} == {"skipped"}
    assert found["driver"]["cases"][0]["driver"]["call"] == "cuInit"


@pytest.mark.usefixtures("here")
def test_a_call_after_the_start_is_refused(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuDeviceGetName"))
    done = mempool("--sim", spec, "check", "--select", "driver", "--select", "fresh")
    why = "the driver refused cuDeviceGetName"
    assert (done.status, done.out) == (
        4,
        label(spec) + "error: driver: the driver loads and starts, and is new enough\n"
        f"  cuDeviceGetName: {why} [cuDeviceGetName = CUDA_ERROR_UNKNOWN (999)]\n"
        f"skipped: fresh: machine: {why}\n",
    )
    assert done.err.endswith(f"error: 1 of 2 checks ended in an error: driver: cuDeviceGetName: {why} [check-error]\n")


CRASH = "int cuGetProcAddress_v2(void);\nint cuGetProcAddress_v2(void) { __builtin_trap(); return 0; }\n"


@pytest.mark.standin
def test_a_driver_that_crashes(standin: StandIn, tmp_path: Path) -> None:
    """The file of an earlier, green run does not stay."""
    source, library, file = (tmp_path / name for name in ("crash.c", "libcuda.so.1", "out.xml"))
    source.write_text(CRASH)
    file.write_text("<testsuites/>")
    compile_c("-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source))
    command = [sys.executable, "-P", "-m", "mempool_cli", "check", "--junit", str(file)]
    done = standin.run(command, "", library=library)
    why = "the driver does not answer: the process was killed by SIGILL in cuDriverGetVersion"
    assert done.returncode == 4
    assert f"error: driver: the driver loads and starts, and is new enough\n  the driver: {why}" in done.stdout
    assert "[check-error]\n  try: `mempool doctor` says why\n" in done.stderr
    (error,) = ElementTree.parse(file).getroot().iter("error")
    assert (error.get("message") or "").startswith(why)


# --- what goes wrong in the middle ---


@pytest.mark.parametrize(("module", "stuck"), [("check.run", "grant"), ("repro.run", "recycled")])
@pytest.mark.usefixtures("here")
def test_a_process_that_remains(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, module: str, stuck: str) -> None:
    """Its check is not passed, although all that it asked was answered, and no other is tried after it."""

    def remains(trial: str, payload: bytes, *, limit: float) -> Outcome:
        done = run_here(trial, payload, limit=limit)
        return done if trial.endswith(":survey") else structs.replace(done, remains=77)

    monkeypatch.setattr(f"mempool_cli.{module}.run_trial", remains)
    status, found = of(mempool, "3", "--select", stuck, "--select", "pools", "--data")
    why = "process 77 of a check remains: SIGKILL does not end it"
    assert (status, found[stuck]["outcome"], found["pools"]["outcome"]) == (4, "error", "passed")
    assert cases(found[stuck], "error")["process"] == why
    assert cases(found["data"], "skipped") == {"machine": f"not tried: {why}"}


@pytest.mark.parametrize(
    ("check", "scripted", "outcome", "why"),
    [
        ("grant", failure("cuMemPoolSetAccess", device=1, times=1), "error", "the driver refused cuMemPoolSetAccess"),
        ("fresh", failure("cuMemPoolGetAccess", times=1), "error", "the driver refused cuMemPoolGetAccess"),
        (
            "capability",
            failure("cuDeviceGetP2PAttribute", times=1),
            "error",
            "the driver refused cuDeviceGetP2PAttribute",
        ),
    ],
)
def test_a_call_is_refused(mempool: Mempool, tmp_path: Path, check: str, scripted: str, outcome: str, why: str) -> None:
    status, found = of(mempool, machine(tmp_path, FOUR, scripted), "--select", check)
    assert (status, found[check]["outcome"]) == (4, outcome)
    assert list(cases(found[check], "error").values()) == [why]


@pytest.mark.usefixtures("here")
def test_a_capability_that_is_not_told(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuDeviceCanAccessPeer", times=1))
    status, found = of(mempool, spec, "--select", "capability", "--select", "grant")
    assert status == 4
    assert cases(found["capability"], "error") == {
        "device 1 with memory of device 0": "the driver refused cuDeviceCanAccessPeer"
    }
    assert cases(found["grant"], "skipped") == {
        "device 0 with memory of device 1": "the driver did not say whether the accessor can reach the owner"
    }


@pytest.mark.parametrize("check", ["batch", "owner"])
@pytest.mark.usefixtures("here")
def test_a_driver_that_refuses_every_change_proves_nothing(mempool: Mempool, tmp_path: Path, check: str) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess", "CUDA_ERROR_NOT_SUPPORTED"))
    status, found = of(mempool, spec, "--select", check)
    assert (status, found[check]["outcome"]) == (4, "error")
    assert set(cases(found[check], "error").values()) == {"the driver refused cuMemPoolSetAccess"}
    assert cases(found[check], "passed") == {}


@pytest.mark.usefixtures("here")
def test_what_was_found_is_told_although_the_pool_is_not_destroyed(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolDestroy"))
    status, found = of(mempool, f"{spec},fault=host-pool-revoke", "--select", "grant")
    assert status == 1
    name, why = next(iter(cases(found["grant"], "failed").items()))
    assert name == "device 0 with memory of the host"
    assert why == (
        "access of device 0 after the revoke reads 0x3, not NONE;"
        " then the driver refused cuMemPoolDestroy = CUDA_ERROR_UNKNOWN (999)"
    )
    # Where nothing was found, this is the error.
    assert set(cases(found["grant"], "error").values()) == {"the driver refused cuMemPoolDestroy"}


@pytest.mark.usefixtures("here")
def test_no_device_has_pools(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, "[[device]]\npools = false\n")
    status, found = of(mempool, spec, "--select", "fresh", "--select", "owner")
    assert status == 6
    for check in found.values():
        assert cases(check, "skipped") == {"devices": "no device has memory pools"}
    rules = str(policy(mempool, tmp_path, spec))
    done = mempool("--sim", spec, "check", rules, "--select", "pools", "--select", "fresh")
    assert "skipped: fresh: devices: no device has memory pools, as the policy says\n" in done.out


@pytest.mark.usefixtures("here")
def test_a_revoke_that_does_not_take(mempool: Mempool) -> None:
    status, found = of(mempool, "2,fault=host-pool-revoke", "--select", "grant")
    assert status == 1
    assert cases(found["grant"], "failed") == {
        f"device {device} with memory of the host": f"access of device {device} after the revoke reads 0x3, not NONE"
        for device in (0, 1)
    }


# --- choosing ---


@pytest.mark.usefixtures("here")
def test_the_list(mempool: Mempool) -> None:
    done = mempool("check", "--list")
    assert done.status == 0
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == [*IDS, "data"]


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (("--select", "grant", "--select", "p*"), ["pools", "grant"]),
        (("--select", "*", "--skip", "[!d]*"), ["driver", "devices", "data"]),
        (("--skip", "recycled", "--skip", "batch"), IDS[:-2]),
    ],
)
@pytest.mark.usefixtures("here")
def test_checks_are_chosen(mempool: Mempool, arguments: tuple[str, ...], ids: list[str]) -> None:
    assert list(of(mempool, "2", *arguments)[1]) == ids


@pytest.mark.parametrize("option", ["--select", "--skip"])
@pytest.mark.usefixtures("here")
def test_no_check_of_that_name(mempool: Mempool, option: str) -> None:
    done = mempool("--sim", "2", "check", option, "nope")
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        f"error: {option}: no check is called 'nope' [usage]\n  try: the checks are {', '.join([*IDS, 'data'])}\n"
    )


# --- a policy ---


@pytest.mark.parametrize("spec", PROFILES)
@pytest.mark.usefixtures("here")
def test_a_machine_fulfils_its_own_policy(mempool: Mempool, tmp_path: Path, spec: str) -> None:
    status, found = of(mempool, spec, str(policy(mempool, tmp_path, spec)), *QUICK)
    assert status == 0
    assert all(case["expected"] for check in found.values() for case in check["cases"] if case["outcome"] == "skipped")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ['a"b\\c', "caf\u00e9", "\u0001\u007f", "\U0001f600", "[x] = 'y' # z"])
def test_a_card_of_any_name_fulfils_its_policy(mempool: Mempool, tmp_path: Path, name: str) -> None:
    escaped = "".join(f"\\U{ord(char):08x}" for char in name)
    spec = machine(tmp_path, f'[[device]]\nname = "{escaped}"')
    rules = policy(mempool, tmp_path, spec)
    assert rules.read_text().isascii()
    assert of(mempool, spec, str(rules), "--select", "devices")[0] == 0


NO_HOST_POOLS = "[[device]]\ncount = 2\nhost_pools = false\n[p2p]\nall = true\n"
TWO_CARDS = '[[device]]\nname = "NVIDIA H200"\n[[device]]\nname = "Old"\npools = false\n'


@pytest.mark.parametrize("spec", ["1", "pcie-4", NO_HOST_POOLS, f"{TWO_CARDS}[p2p]\nall = true\n"])
def test_all_checks_with_its_own_policy(mempool: Mempool, tmp_path: Path, spec: str) -> None:
    spec = machine(tmp_path, spec) if "[" in spec else spec
    assert of(mempool, spec, str(policy(mempool, tmp_path, spec)), "--data")[0] == 0


def test_pools_in_host_memory_are_wanted(mempool: Mempool, tmp_path: Path) -> None:
    rules = tmp_path / "policy.toml"
    rules.write_text("[[device]]\ncount = 2\n[p2p]\nall = true\n")
    status, found = of(mempool, machine(tmp_path, NO_HOST_POOLS), str(rules), "--select", "recycled")
    assert (status, list(cases(found["recycled"], "skipped"))) == (6, ["pools in host memory"])


@pytest.mark.usefixtures("here")
def test_pairs_of_cards_without_pools_are_in_the_policy_too(mempool: Mempool, tmp_path: Path) -> None:
    rules = policy(mempool, tmp_path, machine(tmp_path, f"{TWO_CARDS}[p2p]\nall = true\n"))
    status, found = of(mempool, machine(tmp_path, TWO_CARDS), str(rules), *QUICK)
    assert status == 1
    assert cases(found["capability"], "failed") == lost((1, 0), (0, 1))


@pytest.mark.usefixtures("here")
def test_pairs_that_the_policy_wants_and_the_machine_has_not_at_all(mempool: Mempool, tmp_path: Path) -> None:
    rules = tmp_path / "policy.toml"
    rules.write_text("[[device]]\ncount = 8\n[p2p]\nall = true\n")
    status, found = of(mempool, "1", str(rules), "--select", "driver", "--select", "recycled")
    assert (status, list(cases(found["recycled"], "skipped"))) == (6, ["pools on a device"])


@pytest.mark.usefixtures("here")
def test_a_skip_adds_to_that_of_the_policy(mempool: Mempool, tmp_path: Path) -> None:
    rules = tmp_path / "policy.toml"
    rules.write_text('[checks]\nskip = ["recycled", "p*"]\n')
    found = of(mempool, "2", str(rules), "--skip", "batch")[1]
    assert list(found) == [name for name in IDS if name not in ("recycled", "pools", "batch")]


@pytest.mark.usefixtures("here")
def test_a_link_is_gone(mempool: Mempool, tmp_path: Path) -> None:
    rules = policy(mempool, tmp_path, "pcie-4")
    cards = '[[device]]\nname = "NVIDIA RTX A6000"\ncount = 4\n[p2p]\ngroups = [[0, 1]]\n'
    status, found = of(mempool, machine(tmp_path, cards), str(rules), *QUICK)
    assert status == 1
    assert cases(found["capability"], "failed") == lost((2, 3), (3, 2))


@pytest.mark.usefixtures("here")
def test_a_link_that_must_not_be(mempool: Mempool, tmp_path: Path) -> None:
    rules = policy(mempool, tmp_path, "pcie-4")
    cards = '[[device]]\nname = "NVIDIA RTX A6000"\ncount = 4\n[p2p]\ngroups = [[0, 1], [2, 3]]\npairs = [[0, 2]]\n'
    status, found = of(mempool, machine(tmp_path, cards), str(rules), "--select", "capability")
    assert status == 1
    assert cases(found["capability"], "failed") == {
        "device 0 with memory of device 2": "capable, the policy says it must not be"
    }


@pytest.mark.usefixtures("here")
def test_other_cards(mempool: Mempool, tmp_path: Path) -> None:
    rules = policy(mempool, tmp_path, "pcie-4")
    status, found = of(mempool, "2", str(rules), "--select", "devices")
    assert status == 1
    assert cases(found["devices"], "failed") == {
        "count": "2 visible, the policy wants 4",
        "device 0": "NVIDIA H200, the policy wants NVIDIA RTX A6000",
        "device 1": "NVIDIA H200, the policy wants NVIDIA RTX A6000",
    }


@pytest.mark.usefixtures("here")
def test_an_old_driver(mempool: Mempool, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text('[driver]\ncuda = "13.1"\nversion = "580.1"\n[checks]\nselect = ["driver"]\n')
    status, found = of(mempool, "2", str(file))
    assert status == 1
    assert cases(found["driver"], "failed") == {"CUDA version": "13.0, at least 13.1 is wanted"}
    assert cases(found["driver"], "error") == {"driver version": "it is not known here, at least 580.1 is wanted"}


@pytest.mark.parametrize(("least", "status"), [("13.0.0", 0), ("13", 0), ("13.0.1", 1), ("12.9.9", 0)])
@pytest.mark.usefixtures("here")
def test_versions_of_other_lengths(mempool: Mempool, tmp_path: Path, least: str, status: int) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(f'[driver]\ncuda = "{least}"\n[checks]\nselect = ["driver"]\n')
    assert of(mempool, "2", str(file))[0] == status


DGX = """\
# of a simulated machine: no hardware was asked
# What this machine is, and must be: `mempool check FILE`

[driver]
cuda = "13.0"  # at least

[[device]]
name = "NVIDIA H200"
count = 8

[p2p]  # (accessor, owner): who can reach whose memory; all others must not
all = true
others = "must-not"  # or "may"

[checks]
data = false  # true: mempool verify, too
skip = []

[limits]
seconds = 60  # of each trial
"""


@pytest.mark.usefixtures("here")
def test_the_policy_of_a_machine(mempool: Mempool) -> None:
    assert mempool("--sim", "dgx-h200", "check", "--init") == Done(0, DGX, "")
    assert "groups = [[0, 1], [2, 3]]\npairs = []\n" in mempool("--sim", "pcie-4", "check", "--init").out
    assert "groups = [[0, 2]]\npairs = [[1, 0]]\n" in mempool("--sim", "asym-3", "check", "--init").out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("device = 3", "device: Expected `array`, got `int`"),
        ("[driver]\ncuda = 13.0", "driver.cuda: Expected `str`, got `float`"),
        ("[[device]]\nnam = 1", "unknown key device[0].nam"),
        ("[limits]\nseconds = 0", "limits.seconds: Expected `int` >= 1"),
        ('[driver]\ncuda = "new"', "driver.cuda: 'new' is no version, as 13.0 is"),
        (f'[driver]\ncuda = "{"1" * 5000}"', "driver.cuda: '1111"),
        ("[[device]]\ncount = 1000\n[[device]]\ncount = 25", "device: 1025 devices, at most 1024"),
        ("[p2p]\nall = true", "p2p: there is no [[device]] whose pairs it could be about"),
        (
            f"[[device]]\n[p2p]\ngroups = [{list(range(6000))}]",
            "p2p.groups: there is no device 1 among the 1",
        ),
        ("[[device]]\n[p2p]\npairs = [[0, 1]]", "p2p: (0, 1) is no pair of two of the 1 devices"),
        (
            "[[device]]\ncount = 2\n[p2p]\nnot_pairs = [[0, 0]]",
            "p2p.not_pairs: (0, 0) is no pair of two of the 2 devices",
        ),
        (
            "[[device]]\ncount = 2\n[p2p]\nall = true\nnot_pairs = [[0, 1]]",
            "p2p.not_pairs: (0, 1) must not be capable, and p2p.all says it must",
        ),
        ('[checks]\ndata = true\nskip = ["d*"]', "checks.skip: it leaves out data, which checks.data wants"),
        ('[checks]\nskip = ["nope"]', "checks.skip: no check is called 'nope'"),
        ("x = ", "not TOML: Invalid value (at end of document)"),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_policy_that_is_wrong(mempool: Mempool, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(text)
    done = mempool("--sim", "2", "check", str(file))
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"error: {file}: {message}")
    assert done.err.splitlines()[0].endswith(" [input-file]")


@pytest.mark.usefixtures("here")
def test_a_policy_that_is_not_there(mempool: Mempool) -> None:
    done = mempool("--sim", "2", "check", "/no/such.toml")
    assert done == Done(2, "", "error: cannot read /no/such.toml: No such file or directory [input-file]\n")


@pytest.mark.usefixtures("here")
def test_no_policy_of_what_is_not_known(mempool: Mempool, tmp_path: Path) -> None:
    done = mempool("--sim", machine(tmp_path, FOUR, failure("cuDeviceCanAccessPeer", times=1)), "check", "--init")
    assert (done.status, done.out) == (4, "")
    assert "no policy can be made of that [unreadable-cells]\n" in done.err


def test_data_is_wanted_and_skipped(mempool: Mempool, tmp_path: Path) -> None:
    wants, skips = tmp_path / "wants.toml", tmp_path / "skips.toml"
    wants.write_text("[checks]\ndata = true\n")
    skips.write_text('[checks]\nskip = ["data"]\n')
    text = "error: --data wants what --skip, or checks.skip of the policy, leaves out [usage]\n"
    for words in (["--skip", "data"], [str(skips)]):
        assert mempool("--sim", "2", "check", "--data", *words) == Done(2, "", text)
    assert "data" not in mempool("--sim", "2", "check", str(wants), "--skip", "data").err


# --- for CI servers ---


def junit(mempool: Mempool, directory: Path, *arguments: str) -> ElementTree.Element:
    file = directory / "out.xml"
    mempool(*arguments, "--junit", str(file))
    xmlschema.XMLSchema(SCHEMA).validate(file)
    return ElementTree.parse(file).getroot()


@pytest.mark.usefixtures("here")
def test_junit(mempool: Mempool, tmp_path: Path) -> None:
    root = junit(mempool, tmp_path, "--sim", "mixed-4", "check", *QUICK)
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("44", "1", "0")
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == [f"mempool.{name}" for name in IDS[:-1]]
    (failed,) = root.iter("failure")
    assert failed.get("message") == "Tesla K40c has no memory pools"
    assert {each.get("message") for each in root.iter("skipped")} == {
        "device 2 has no memory pools",
        f"the accessor cannot reach the owner {CAPABLE}",
    }
    case = suites["mempool.grant"].find("testcase")
    assert case is not None
    assert case.get("classname") == "mempool.grant"
    properties = {each.get("name"): each.get("value") for each in suites["mempool.pools"].iter("property")}
    assert properties["simulated machine"] == "mixed-4"
    assert properties["device 2"] == "Tesla K40c, 0000:05:00.0, GPU-ddd6ede9-f2b5-5396-a65b-2b9452a400eb"


@pytest.mark.usefixtures("here")
def test_junit_of_an_error(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolGetAccess", times=1))
    root = junit(mempool, tmp_path, "--sim", spec, "check", "--select", "fresh")
    (error,) = root.iter("error")
    assert error.get("message") == "the driver refused cuMemPoolGetAccess"
    assert error.text == "cuMemPoolGetAccess = CUDA_ERROR_UNKNOWN (999)"


@pytest.mark.usefixtures("here")
def test_junit_of_odd_names(mempool: Mempool, tmp_path: Path) -> None:
    """What XML cannot carry, and what it has to escape."""
    spec = machine(tmp_path, '[[device]]\nname = "a<b>&\\u0001\\u00e9"\npools = false\n')
    root = junit(mempool, tmp_path, "--sim", spec, "check", "--select", "pools")
    (failed,) = root.iter("failure")
    assert failed.get("message") == "a<b>&\N{REPLACEMENT CHARACTER}é has no memory pools"


@pytest.mark.usefixtures("here")
def test_junit_that_cannot_be_written(mempool: Mempool) -> None:
    done = mempool("--sim", "2", "check", "--junit", "/no/such/out.xml")
    assert (done.status, done.out) == (74, "")
    assert "/no/such/out.xml cannot be written" in done.err


@pytest.mark.usefixtures("here")
def test_junit_that_cannot_be_written_to_its_end(mempool: Mempool) -> None:
    done = mempool("--sim", "2", "check", "--select", "driver", "--junit", "/dev/full")
    assert (done.status, done.out) == (74, label("2") + "passed: driver\n")
    assert done.err.endswith("error: /dev/full cannot be written: No space left on device [output]\n")


@pytest.mark.parametrize("words", ["--list", "--init"])
def test_a_policy_of_no_checks(mempool: Mempool, tmp_path: Path, words: str) -> None:
    file = policy(mempool, tmp_path, "2")
    done = mempool("--sim", "2", "check", str(file), words)
    assert done == Done(2, "", f"error: POLICY with {words}: nothing is checked [usage]\n")


@pytest.mark.parametrize("words", [["--list"], ["--init"]])
def test_junit_of_no_checks(mempool: Mempool, tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "out.xml"
    done = mempool("--sim", "2", "check", *words, "--junit", str(file))
    assert done == Done(2, "", f"error: --junit with {words[0]}: nothing is checked [usage]\n")
    assert not file.exists()


@pytest.mark.usefixtures("here")
def test_annotations(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = mempool("--sim", "mixed-4", "check", "--select", "pools", "--select", "grant")
    assert [line for line in done.err.splitlines() if line.startswith("::")] == [
        "::error title=mempool check pools::device 2: Tesla K40c has no memory pools",
        "::warning title=mempool check grant::pairs of device 2: device 2 has no memory pools",
    ]
    allowed = mempool("--sim", "mixed-4", "check", "--select", "grant", "--allow-skips")
    assert (allowed.status, "::" in allowed.err) == (0, False)


@pytest.mark.usefixtures("here")
def test_every_case(mempool: Mempool) -> None:
    done = mempool("--sim", "2", "check", "-v", "--select", "fresh", "--select", "capability")
    assert done.out == label("2") + (
        "check       outcome  case                              why\n"
        "capability  passed   device 1 with memory of device 0  capable\n"
        "capability  passed   device 0 with memory of device 1  capable\n"
        "fresh       passed   device 0                          the owner alone has access\n"
        "fresh       passed   device 1                          the owner alone has access\n"
    )
