"""`mempool repro` on simulated machines: verdicts, exit statuses, and what is handed over."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Done, Mempool
from cli.machines import FOUR, failure, label, machine
from msgspec import structs

from mempool_cli.child import Outcome
from mempool_cli.repro import every_bug, find_bug

from .trials_helper import run_here, survives

QUICK = ("--repeat", "1", "--cleanup", "none")
AFFECTED = "4,fault=recycled-handle"
TRAPS = ("grant-without-p2p", "owner-in-batch", "query-breaks-capture", "use-after-destroy")
BUGS = ("host-pool-revoke", "peer-write-lost", "pointer-flags", "recycled-handle")


def of(mempool: Mempool, spec: str, *arguments: str) -> tuple[Done, list[dict[str, Any]]]:
    """What came of it, and the reproductions of the JSON document."""
    done = mempool("--sim", spec, "--format", "json", "repro", *arguments)
    found = json.loads(done.out)
    assert found["exit"] == done.status
    assert found["ok"] is (done.status == 0)
    return done, found["data"]["reproductions"]


def error(done: Done) -> tuple[str, str]:
    """The code and the message of a JSON document."""
    found = json.loads(done.out)["error"]
    return found["code"], found["message"]


def short(reproductions: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(one["bug"], one["variant"], one["verdict"]) for one in reproductions]


def counted(trial: dict[str, Any]) -> dict[str, int]:
    return {each["name"]: each["count"] for each in trial["counted"]}


# --- recycled-handle ---


def test_the_bug_is_seen(mempool: Mempool) -> None:
    done, (device, host) = of(mempool, AFFECTED, "--repeat", "1")
    assert done.status == 1
    assert error(done)[0] == "affected"
    assert (device["verdict"], device["owner"], device["accessor"]) == ("affected", 0, 1)
    assert (host["verdict"], host["owner"], host["accessor"]) == ("not-affected", None, 0)
    histories = ("never-allocated", "allocated")
    answers = {
        "none": ("affected", []),
        "per-device": ("not-affected", [("CUDA_SUCCESS", 256)]),
        "one-call-with-owner": ("affected", [("CUDA_ERROR_INVALID_DEVICE", 256)]),
    }
    assert [
        (trial["arm"], trial["history"], trial["verdict"], [(each["name"], each["count"]) for each in trial["cleared"]])
        for trial in device["trials"]
    ] == [(arm, history, *answer) for arm, answer in answers.items() for history in histories]
    assert {trial["verdict"] for trial in host["trials"]} == {"not-affected"}
    for trial in device["trials"]:
        found = counted(trial)
        assert found["recycled_tainted"] >= 8
        assert found["tainted_values"] >= 2
        assert found["inherited"] == (found["recycled_tainted"] if trial["verdict"] == "affected" else 0)


WHY = "access was inherited by 75 of 75"
NONE = "none of 75 recycled handles had access"
TEXT = f"""\
recycled-handle: a pool with a recycled handle inherits the access of the destroyed pool
pools on device 0, accessed by device 1: affected: none, never-allocated: {WHY}
  is access enforced all the same: untested
  arm                  history          run  verdict       answered                             why
  none                 never-allocated  1    affected      -                                    {WHY}
  none                 never-allocated  2    affected      -                                    {WHY}
  none                 allocated        1    affected      -                                    {WHY}
  none                 allocated        2    affected      -                                    {WHY}
  per-device           never-allocated  1    not-affected  CUDA_SUCCESS 256 times               {NONE}
  per-device           never-allocated  2    not-affected  CUDA_SUCCESS 256 times               {NONE}
  per-device           allocated        1    not-affected  CUDA_SUCCESS 256 times               {NONE}
  per-device           allocated        2    not-affected  CUDA_SUCCESS 256 times               {NONE}
  one-call-with-owner  never-allocated  1    affected      CUDA_ERROR_INVALID_DEVICE 256 times  {WHY}
  one-call-with-owner  never-allocated  2    affected      CUDA_ERROR_INVALID_DEVICE 256 times  {WHY}
  one-call-with-owner  allocated        1    affected      CUDA_ERROR_INVALID_DEVICE 256 times  {WHY}
  one-call-with-owner  allocated        2    affected      CUDA_ERROR_INVALID_DEVICE 256 times  {WHY}

recycled-handle: a pool with a recycled handle inherits the access of the destroyed pool
pools on the host, accessed by device 0: not-affected: none, never-allocated: {NONE}
"""


@pytest.mark.usefixtures("here")
def test_the_bug_in_words(mempool: Mempool) -> None:
    done = mempool("--sim", AFFECTED, "repro")
    assert done.status == 1
    assert done.out.startswith(label(AFFECTED) + TEXT)
    assert done.err.startswith(
        "recycled-handle: trials with pools on device 0, accessed by device 1...\n"
        "recycled-handle: trials with pools on the host, accessed by device 0...\n"
        f"error: recycled-handle, device pools: none, never-allocated: {WHY} [affected]\n"
    )


def test_a_good_driver(mempool: Mempool) -> None:
    done = mempool("--sim", "4", "repro", *QUICK)
    assert done.status == 0
    assert [line.rstrip() for line in done.out.splitlines()] == [
        "SIMULATED machine 4: no hardware was asked",
        "recycled-handle: a pool with a recycled handle inherits the access of the destroyed pool",
        f"pools on device 0, accessed by device 1: not-affected: none, never-allocated: {NONE}",
        "  arm   history          run  verdict       answered  why",
        f"  none  never-allocated  1    not-affected  -         {NONE}",
        f"  none  allocated        1    not-affected  -         {NONE}",
        "",
        "recycled-handle: a pool with a recycled handle inherits the access of the destroyed pool",
        f"pools on the host, accessed by device 0: not-affected: none, never-allocated: {NONE}",
        "  arm   history          run  verdict       answered  why",
        f"  none  never-allocated  1    not-affected  -         {NONE}",
        f"  none  allocated        1    not-affected  -         {NONE}",
    ]


def test_one_device(mempool: Mempool) -> None:
    missing = "pools on a device need two devices, and 1 is visible"
    done = mempool("--sim", "1", "repro", *QUICK)
    assert done.status == 6
    assert f"device pools: inconclusive: {missing}\n" in done.out
    assert f"pools on the host, accessed by device 0: not-affected: none, never-allocated: {NONE}\n" in done.out
    assert f"\nerror: recycled-handle, device pools: {missing} [inconclusive]\n" in done.err


@pytest.mark.parametrize(
    ("spec", "arguments", "why"),
    [
        ("4,fault=fresh-handles", (), "no handle came back of a pool that was never granted"),
        ("4", ("--attempts", "16"), "only 0 tainted handles came back, of 8 needed"),
        ("4", ("--attempts", "32"), "only 5 tainted handles came back, of 8 needed"),
    ],
)
@pytest.mark.usefixtures("here")
def test_not_enough_was_seen(mempool: Mempool, spec: str, arguments: tuple[str, ...], why: str) -> None:
    done, found = of(mempool, spec, *QUICK, *arguments)
    assert done.status == 6
    assert found[0]["verdict"] == "inconclusive"
    assert found[0]["why"] == f"none, never-allocated: {why}"
    assert {trial["why"] for trial in found[0]["trials"]} == {why}


@pytest.mark.usefixtures("here")
def test_no_device_reaches_another(mempool: Mempool) -> None:
    done, found = of(mempool, "no-p2p-2", *QUICK)
    assert done.status == 6
    assert [one["verdict"] for one in found] == ["inconclusive", "not-affected"]
    assert found[0]["trials"] == []
    assert (found[0]["owner"], found[0]["accessor"]) == (None, None)


@pytest.mark.usefixtures("here")
def test_more_attempts(mempool: Mempool) -> None:
    _, found = of(mempool, "4", *QUICK, "--attempts", "100")
    assert counted(found[0]["trials"][0])["created"] == 4 * 16 + 7 * 16


@pytest.mark.parametrize(("fault", "verdict", "status"), [("", "inconclusive", 6), (AFFECTED[1:], "inconclusive", 6)])
@pytest.mark.usefixtures("here")
def test_an_arm_that_does_not_decide(mempool: Mempool, fault: str, verdict: str, status: int) -> None:
    done, found = of(mempool, f"4{fault}", "--repeat", "1", "--cleanup", "per-device")
    assert done.status == status
    assert {one["verdict"] for one in found} == {verdict}
    assert {trial["arm"] for one in found for trial in one["trials"]} == {"per-device"}
    assert error(done) == ("inconclusive", "recycled-handle, device pools: the arm none decides, and was not run")


@pytest.mark.usefixtures("here")
def test_arms_and_repeats_are_chosen(mempool: Mempool) -> None:
    arguments = ("--cleanup", "none", "--cleanup", "per-device", "--repeat", "3", "--attempts", "16")
    _, found = of(mempool, "1", *arguments)
    assert [(trial["arm"], trial["repeat"]) for trial in found[1]["trials"]] == [
        (arm, repeat) for arm in ("none", "per-device") for _ in range(2) for repeat in (1, 2, 3)
    ]


# --- other bugs, and traps ---


@pytest.mark.parametrize(
    ("bug", "spec", "status", "verdict"),
    [
        ("host-pool-revoke", "4", 0, "not-affected"),
        ("host-pool-revoke", "4,fault=host-pool-revoke", 1, "affected"),
        ("host-pool-revoke", "1", 0, "not-affected"),
        ("peer-write-lost", "4", 0, "not-affected"),
        ("peer-write-lost", "2", 0, "not-affected"),
        ("peer-write-lost", "2,fault=lost-after-setaccess", 1, "affected"),
        ("peer-write-lost", "4,fault=lost-after-setaccess:0-1", 1, "affected"),
        ("peer-write-lost", "4,fault=lost-after-setaccess:1-0", 0, "not-affected"),
        ("peer-write-lost", "2,fault=drop-writes", 6, "inconclusive"),
        ("pointer-flags", "4", 1, "affected"),
        ("pointer-flags", "4,fault=honest-pointer-flags", 0, "not-affected"),
        ("pointer-flags", "1", 1, "affected"),
        ("grant-without-p2p", "no-p2p-2", 0, "present"),
        ("query-breaks-capture", "4", 0, "present"),
        ("use-after-destroy", "4", 0, "present"),
    ],
)
def test_one_by_name(mempool: Mempool, bug: str, spec: str, status: int, verdict: str) -> None:
    done, found = of(mempool, spec, bug, "--repeat", "1")
    assert (done.status, [one["verdict"] for one in found]) == (status, [verdict])
    assert {trial["verdict"] for trial in found[0]["trials"]} == {verdict}


@pytest.mark.usefixtures("here")
def test_lost_copies_are_counted(mempool: Mempool) -> None:
    """All codes are SUCCESS, the pool says READWRITE, and there are zeros; a kernel gets through."""
    _, (found,) = of(mempool, "2,fault=lost-after-setaccess", "peer-write-lost", "--repeat", "1")
    assert (found["owner"], found["accessor"], found["enforced"]) == (0, 1, None)
    assert [trial["history"] for trial in found["trials"]] == ["granted-first", "allocated-first"]
    for trial in found["trials"]:
        assert trial["why"] == "8 of 8 copies left zeros, where a kernel's write arrived"
        assert {name: count for name, count in counted(trial).items() if count} == {
            "control": 1,
            "granted": 8,
            "zeros": 8,
            "kernel_arrived": 8,
        }


@pytest.mark.parametrize("fault", ["drop-writes", "mirror", "corrupt"])
@pytest.mark.usefixtures("here")
def test_a_broken_path_is_not_that_bug(mempool: Mempool, fault: str) -> None:
    """Also one that changes a byte now and then, and none of the first."""
    _, (found,) = of(mempool, f"2,fault={fault}", "peer-write-lost", "--repeat", "1")
    assert {trial["why"] for trial in found["trials"]} == {
        "the control, a copy into a pool without a grant, does not arrive"
    }
    assert not any(each["count"] for trial in found["trials"] for each in trial["counted"])


@pytest.mark.parametrize(
    ("spec", "arguments", "why"),
    [
        ("1", (), "pools on a device need two devices, and 1 is visible"),
        ("no-p2p-2", (), "no device reaches another one with memory pools"),
        (
            "asym-3",
            ("--owner", "1"),
            "no device reaches another one with memory pools, with owner device 1",
        ),
    ],
)
@pytest.mark.usefixtures("here")
def test_peer_write_lost_needs_a_pair(mempool: Mempool, spec: str, arguments: tuple[str, ...], why: str) -> None:
    done, (found,) = of(mempool, spec, "peer-write-lost", *arguments)
    assert (done.status, found["verdict"], found["why"]) == (6, "inconclusive", why)


def test_owner_in_batch(mempool: Mempool) -> None:
    done = mempool("--sim", "4", "repro", "owner-in-batch", "--repeat", "1")
    why = "the accessor kept its access"
    title = find_bug("owner-in-batch").title
    assert done.status == 0
    assert done.out == (
        f"{label('4')}owner-in-batch: {title}\n"
        f"pools on device 0, accessed by device 1: present: clear, never-allocated: {why}\n"
        "  arm    history          run  verdict  answered                        why\n"
        f"  clear  never-allocated  1    present  CUDA_ERROR_INVALID_DEVICE once  {why}\n"
        "\n"
        f"owner-in-batch: {title}\n"
        f"pools on the host, accessed by device 0: present: clear, never-allocated: {why}\n"
        "  arm    history          run  verdict  answered                       why\n"
        f"  clear  never-allocated  1    present  CUDA_ERROR_NOT_SUPPORTED once  {why}\n"
    )


@pytest.mark.parametrize(
    ("trap", "spec", "codes"),
    [
        ("grant-without-p2p", "no-p2p-2", ["CUDA_SUCCESS"]),
        ("query-breaks-capture", "4", ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"]),
        ("use-after-destroy", "4", ["CUDA_SUCCESS"]),
    ],
)
@pytest.mark.usefixtures("here")
def test_traps_have_codes_beside_them(mempool: Mempool, trap: str, spec: str, codes: list[str]) -> None:
    _, (found,) = of(mempool, spec, trap, "--repeat", "1")
    assert [each["name"] for each in found["trials"][0]["cleared"]] == codes


@pytest.mark.usefixtures("here")
def test_the_codes_in_words(mempool: Mempool) -> None:
    done = mempool("--sim", "2,fault=lost-after-setaccess", "repro", "peer-write-lost", "--repeat", "1")
    assert done.out.count("  affected  CUDA_SUCCESS 8 times  8 of 8 copies left zeros, ") == 2
    done = mempool("--sim", "no-p2p-2", "repro", "grant-without-p2p", "--repeat", "1")
    assert done.out.count("  present  CUDA_SUCCESS once  the grant was accepted, ") == 1


@pytest.mark.usefixtures("here")
def test_a_trap_that_cannot_be_tried_is_not_passed(mempool: Mempool) -> None:
    """Neither present nor absent: docs/repro.md gives 6 for inconclusive, as the C program does."""
    done, (found,) = of(mempool, "4", "grant-without-p2p")
    assert found["verdict"] == "inconclusive"
    assert done.status == 6


@pytest.mark.usefixtures("here")
def test_all_and_traps(mempool: Mempool) -> None:
    quick = ("--repeat", "1", "--attempts", "16")
    _, found = of(mempool, "4", "--all", *quick)
    assert {one["bug"] for one in found} == set(BUGS)
    done, found = of(mempool, "no-p2p-2", "--traps", *quick)
    assert {one["bug"] for one in found} == set(TRAPS)
    assert "present" in {one["verdict"] for one in found}
    _, found = of(mempool, "4", "--all", "--traps", *quick)
    assert {one["bug"] for one in found} == {*BUGS, *TRAPS}
    assert done.status in (0, 6)


def test_the_list(mempool: Mempool) -> None:
    done = mempool("repro", "--list")
    assert (done.status, done.err) == (0, "")
    expected = []
    for bug in every_bug().values():
        expected += [f"{bug.id}  {bug.kind}: {bug.title}"]
        expected += [f"  needs   {need}" for need in bug.needs.values()]
        expected += [f"  source  {source}" for source in bug.sources]
    assert done.out.splitlines() == expected
    assert tuple(every_bug()) == tuple(sorted((*BUGS, *TRAPS)))
    found = json.loads(mempool("repro", "--list", "--format", "json").out)
    assert [bug["id"] for bug in found["data"]["bugs"]] == list(every_bug())
    assert all(bug["needs"] and bug["sources"] for bug in found["data"]["bugs"])


# --- choices ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nope",), "there is no reproduction 'nope': grant-without-p2p, "),
        (("recycled-handle", "nope"), "there is no reproduction 'nope': "),
        (("--owner", "9"), "there is no device 9: devices 0 to 3 are visible [unknown-device]"),
        (("--accessor", "x"), "[unknown-device]"),
        (("--cleanup", "nope"), "there is no arm 'nope': "),
        (("--all", "pointer-flags"), "names, or --all and --traps"),
        (("--attempts", "15"), "--attempts"),
        (("--repeat", "0"), "--repeat"),
        (("--limit", "0"), "--limit"),
        (("--all", "--emit-c", "x.c"), "--emit-c writes one program: give one NAME"),
        (("pointer-flags", "recycled-handle", "--emit-c", "x.c"), "--emit-c writes one program: give one NAME"),
    ],
    ids=str,
)
def test_wrong_words(
    mempool: Mempool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = mempool("--sim", "4", "repro", *arguments)
    assert (done.status, done.out) == (2, "")
    assert words in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("spec", "arguments", "pairs"),
    [
        ("asym-3", (), [(0, 1), (None, 0)]),
        ("asym-3", ("--owner", "2"), [(2, 0), (None, 0)]),
        ("asym-3", ("--accessor", "2"), [(0, 2), (None, 2)]),
        ("4", ("--owner", "3", "--accessor", "2"), [(3, 2), (None, 2)]),
        ("asym-3", ("--owner", "1"), [(None, None), (None, 0)]),
        ("4", ("--owner", "1", "--accessor", "1"), [(None, None), (None, 1)]),
    ],
)
@pytest.mark.usefixtures("here")
def test_the_pair(
    mempool: Mempool, spec: str, arguments: tuple[str, ...], pairs: list[tuple[int | None, int | None]]
) -> None:
    done, found = of(mempool, spec, *QUICK, *arguments)
    assert [(one["owner"], one["accessor"]) for one in found] == pairs
    missing = (None, None) in pairs
    assert done.status == (6 if missing else 0)
    assert [one["verdict"] for one in found] == ["inconclusive" if missing else "not-affected", "not-affected"]


@pytest.mark.usefixtures("here")
def test_a_pair_that_cannot_says_so(mempool: Mempool) -> None:
    """Devices of asym-3 do reach others; what nobody reaches is the one that was chosen."""
    _, found = of(mempool, "asym-3", *QUICK, "--owner", "1")
    assert found[0]["why"] != "no device reaches another one with memory pools"
    assert "device 1" in found[0]["why"]


# --- several, and failures ---


@pytest.mark.usefixtures("here")
def test_affected_is_worse_than_inconclusive(mempool: Mempool) -> None:
    done, found = of(mempool, "1", "recycled-handle", "pointer-flags", "--repeat", "1")
    assert [verdict for *_, verdict in short(found)] == ["inconclusive", "not-affected", "affected"]
    assert done.status == 1
    assert error(done)[1].startswith("pointer-flags, host pools: ask, allocated: 8 of 8")


def test_a_failed_trial_is_worse_than_inconclusive(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, "[[device]]", failure("cuMemPoolCreate", "CUDA_ERROR_UNKNOWN"))
    done = mempool("--sim", spec, "repro", *QUICK)
    assert done.status == 4
    assert "device pools: inconclusive: pools on a device need two devices" in done.out
    assert "\nerror: recycled-handle, host pools: none, never-allocated: " in done.err
    assert "cuMemPoolCreate = CUDA_ERROR_UNKNOWN (999)" in done.err
    assert "[trial-failed]\n" in done.err


@pytest.mark.usefixtures("here")
def test_affected_is_worse_than_a_failed_trial(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess"))
    done, found = of(mempool, spec, "host-pool-revoke", "pointer-flags", "--repeat", "1")
    assert [verdict for *_, verdict in short(found)] == ["failed", "affected"]
    assert done.status == 1


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(ended="signal", signal="SIGSEGV", last_call="cuX()"), "the process was killed by SIGSEGV in cuX()"),
        (Outcome(ended="signal", signal="SIGKILL"), "the process was killed by SIGKILL"),
        (Outcome(ended="hung", last_call="cuX()"), "the process did not end in time and was killed in cuX()"),
        (Outcome(ended="hung", remains=77), "SIGKILL does not end it: pid PID remains"),
        (Outcome(ended="exit", status=1, words="a\nValueError: b"), "the process ended with status 1: ValueError: b"),
    ],
    ids=lambda each: each.ended if isinstance(each, Outcome) else "",
)
def test_a_trial_that_does_not_return(
    mempool: Mempool, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, words: str
) -> None:
    monkeypatch.setattr("mempool_cli.repro.run.run_trial", survives(outcome))
    done = mempool("--sim", "4", "repro", "host-pool-revoke")
    assert done.status == 4
    assert words in done.err
    assert "[trial-failed]\n" in done.err
    _, (found,) = of(mempool, "4", "host-pool-revoke")
    trial = found["trials"][0]
    assert (trial["ended"], trial["signal"], trial["last_call"], trial["remains"]) == (
        outcome.ended,
        outcome.signal,
        outcome.last_call,
        outcome.remains,
    )


def test_after_a_process_that_remains_no_other_is_started(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would use the device in which that one is stuck. What was not tried is not passed."""
    monkeypatch.setattr("mempool_cli.repro.run.run_trial", survives(Outcome(ended="hung", remains=77)))
    done, (first, second) = of(mempool, "4", "host-pool-revoke", "pointer-flags")
    assert (done.status, len(first["trials"]), first["verdict"]) == (4, 1, "failed")
    assert (second["trials"], second["verdict"]) == ([], "inconclusive")
    assert second["why"] == "not tried: process 77 of a trial before remains"


def test_a_pass_before_a_process_that_remains_is_none(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial that remains had passed, but the others, of the other history, were not tried. A bug stays one."""

    def remains(trial: str, payload: bytes, *, limit: float) -> Outcome:
        return structs.replace(run_here(trial, payload, limit=limit), remains=None if "survey" in trial else 77)

    monkeypatch.setattr("mempool_cli.repro.run.run_trial", remains)
    done, (found,) = of(mempool, "4", "host-pool-revoke")
    assert (done.status, found["verdict"], len(found["trials"])) == (6, "inconclusive", 1)
    assert found["trials"][0]["verdict"] == "not-affected"
    assert found["why"] == "process 77 of a trial remains, and no other one was started"
    done, (found,) = of(mempool, "4,fault=host-pool-revoke", "host-pool-revoke")
    assert (done.status, found["verdict"], len(found["trials"])) == (1, "affected", 1)


def test_a_dead_handle_may_kill(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is the trap, not a failure; a hang is one, and a death before the handle was dead, or by somebody else."""
    destroyed = ("cuMemPoolDestroy(0x5500) = CUDA_SUCCESS <2 us>",)
    crash = Outcome(ended="signal", signal="SIGSEGV", calls=destroyed)
    monkeypatch.setattr("mempool_cli.repro.run.run_trial", survives(crash))
    done, (found,) = of(mempool, "4", "use-after-destroy")
    assert (done.status, found["verdict"], found["trials"][0]["signal"]) == (0, "present", "SIGSEGV")
    for other in (
        Outcome(ended="signal", signal="SIGSEGV", calls=("cuInit()",)),
        Outcome(ended="signal", signal="SIGKILL", calls=destroyed),
    ):
        monkeypatch.setattr("mempool_cli.repro.run.run_trial", survives(other))
        assert of(mempool, "4", "use-after-destroy")[0].status == 4
    monkeypatch.setattr("mempool_cli.repro.run.run_trial", survives(Outcome(ended="hung")))
    assert of(mempool, "4", "use-after-destroy")[0].status == 4


def test_no_device(mempool: Mempool) -> None:
    done = mempool("--sim", "0", "repro")
    assert (done.status, done.out) == (3, "")
    assert "[no-device]" in done.err


def test_no_driver(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    report, program = tmp_path / "report.json", tmp_path / "bug.c"
    done = mempool("repro", "--report", str(report), "--emit-c", str(program))
    assert done.status == 3
    assert "the CUDA driver library, libcuda.so.1, cannot be loaded [no-driver]\n" in done.err
    assert json.loads(report.read_text())["result"]["error"]["code"] == "no-driver"
    assert "Seen on   nothing yet" in program.read_text()


# --- kernels ---


@pytest.mark.usefixtures("here")
def test_may_a_kernel(mempool: Mempool) -> None:
    _, (device, host) = of(mempool, AFFECTED, "--repeat", "1", "--cleanup", "none")
    assert (device["enforced"], host["enforced"]) == ("untested", None)
    done, (device, host) = of(
        mempool, AFFECTED, "--repeat", "1", "--cleanup", "none", "--cleanup", "kernel", "--allow-faults"
    )
    assert (done.status, device["enforced"], host["enforced"]) == (1, "no", None)


@pytest.mark.parametrize(
    ("bug", "spec"),
    [("recycled-handle", f"2,{AFFECTED[2:]},fault={{}}"), ("host-pool-revoke", "2,fault=host-pool-revoke,fault={}")],
)
@pytest.mark.parametrize(
    ("fault", "enforced", "came_of_it"),
    [
        ("leak", "no", "got_through"),
        ("mirror", "untested", "dropped"),
        ("drop-writes", "untested", "dropped"),
    ],
)
@pytest.mark.usefixtures("here")
def test_the_owner_says_whether_a_kernel_got_through(
    mempool: Mempool, bug: str, spec: str, fault: str, enforced: str, came_of_it: str
) -> None:
    """What the writer reads back proves nothing: behind a mirror it sees its own word, and the owner never does."""
    _, found = of(mempool, spec.format(fault), bug, "--repeat", "1", "--allow-faults")
    assert (found[0]["verdict"], found[0]["enforced"]) == ("affected", enforced)
    trial = next(trial for trial in found[0]["trials"] if (trial["arm"], trial["history"]) == ("kernel", "allocated"))
    seen = {name: count for name, count in counted(trial).items() if name in ("got_through", "dropped", "blocked")}
    assert seen == {"got_through": 0, "dropped": 0, "blocked": 0} | {came_of_it: 1}


# --- what is handed over ---

UUID = "8fc8b5a0-0000-4000-8000-123456789abc"
SECRETS = {
    "uuid": f"GPU-{UUID}",
    "mig": "MIG-1fc8b5a0-0000-4000-8000-123456789abd",
    "bus": "00000000:4E:00.0",
    "serial": "1650123456789",
    "chassis serial": "1652223330001",
    "cluster uuid": "3a1b5a00-1111-4000-8000-aaaaaaaaaaaa",
}
SMI = f"""#!/bin/sh
case "$1" in
-q) cat <<'END' ;;
GPU {SECRETS["bus"]}
    Product Name                          : NVIDIA H200
    Serial Number                         : {SECRETS["serial"]}
    GPU UUID                              : {SECRETS["uuid"]}
    MIG UUID                              : {SECRETS["mig"]}
    VBIOS Version                         : 96.00.BC.00.01
    MIG Mode
        Current                           : Disabled
    GSP Firmware Version                  : 580.159.04
    Bus Id                                : {SECRETS["bus"]}
    Chassis Serial Number                 : {SECRETS["chassis serial"]}
    ClusterUUID                           : {SECRETS["cluster uuid"]}
END
topo) echo "GPU0 X on $(uname -n)" ;;
esac
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An nvidia-smi, and variables that name devices."""
    directory = tmp_path / "bin"
    directory.mkdir()
    program = directory / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_MODULE_LOADING", "EAGER")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", f"{SECRETS['uuid']},{SECRETS['mig']}")
    monkeypatch.setenv("MEMPOOL_UNRELATED", "secret")


@pytest.mark.usefixtures("here", "smi")
def test_a_report(mempool: Mempool, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = mempool("--sim", AFFECTED, "repro", *QUICK, "--report", str(file))
    assert done.status == 1
    found = json.loads(file.read_text())
    assert found["schema"] == "mempool-report/1"
    assert found["result"]["exit"] == 1
    assert [one["verdict"] for one in found["result"]["data"]["reproductions"]] == ["affected", "not-affected"]
    device, host = found["calls"]
    assert [device[key] for key in ("bug", "variant", "arm", "history", "repeat")] == [
        "recycled-handle",
        "device",
        "none",
        "never-allocated",
        1,
    ]
    grants = [call for call in device["calls"] if "device 1 READWRITE]) = CUDA_SUCCESS" in call]
    assert len(grants) == 256
    assert all(call.startswith("cuMemPoolSetAccess(0x") for call in grants)
    assert device["calls"][0] == "cuInit()"
    assert host["variant"] == "host"
    facts = found["machine"]
    assert facts["host_name"] == platform.node()
    assert facts["kernel"].startswith("Linux ")
    assert (facts["vbios"], facts["gsp_firmware"], facts["mig"]) == (["96.00.BC.00.01"], ["580.159.04"], ["Disabled"])
    assert facts["environment"]["CUDA_MODULE_LOADING"] == "EAGER"
    assert "MEMPOOL_UNRELATED" not in facts["environment"]
    assert SECRETS["uuid"] in facts["nvidia_smi"]["query"]
    assert facts["nvidia_smi"]["topology"] == f"GPU0 X on {platform.node()}\n"
    assert {"hypervisor", "iommu", "mps", "kernel_module"} <= set(facts)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "report.json"]


@pytest.mark.usefixtures("here", "smi")
def test_a_report_has_the_devices(mempool: Mempool, tmp_path: Path) -> None:
    """Also where there is no nvidia-smi: the driver knows UUID and bus id of the devices it used."""
    file = tmp_path / "report.json"
    mempool("--sim", "4", "repro", "host-pool-revoke", "--report", str(file))
    text = file.read_text()
    devices = json.loads(mempool("--sim", "4", "devices", "--format", "json").out)["data"]["devices"]
    assert all(device["pci_bus_id"] in text and device["uuid"] in text for device in devices)


@pytest.mark.usefixtures("here", "smi")
def test_the_calls_of_a_failed_trial(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess", after=3))
    file = tmp_path / "report.json"
    assert mempool("--sim", spec, "repro", "host-pool-revoke", "--report", str(file)).status == 4
    (calls,) = json.loads(file.read_text())["calls"]
    assert " = CUDA_ERROR_UNKNOWN (999) " in calls["calls"][-1]
    assert calls["calls"][-1].startswith("cuMemPoolSetAccess(0x")


@pytest.fixture
def redacted(mempool: Mempool, smi: None, here: None, tmp_path: Path) -> str:
    file = tmp_path / "report.json"
    mempool("--sim", "4", "repro", "host-pool-revoke", "--report", str(file), "--redact")
    text = file.read_text()
    facts = json.loads(text)["machine"]
    assert facts["host_name"] == "(redacted)"
    assert "VBIOS Version                         : 96.00.BC.00.01\n" in facts["nvidia_smi"]["query"]
    return text


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_redacted_report(redacted: str, secret: str) -> None:
    assert secret not in redacted
    assert secret.lower() not in redacted.lower()


def test_a_redacted_report_has_no_host_name(redacted: str) -> None:
    assert platform.node()
    assert platform.node() not in redacted


@pytest.mark.usefixtures("here")
def test_the_beginning_of_a_uuid_is_redacted(mempool: Mempool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CUDA takes abbreviated UUIDs."""
    devices = json.loads(mempool("--sim", "4", "devices", "--format", "json").out)["data"]["devices"]
    short_uuid = devices[0]["uuid"][:12]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", short_uuid)
    file = tmp_path / "report.json"
    assert mempool("--sim", "4", "repro", "host-pool-revoke", "--report", str(file), "--redact").status == 0
    assert short_uuid not in file.read_text()


@pytest.mark.parametrize("option", ["--report", "--emit-c"])
@pytest.mark.parametrize("file", ["missing/file", "directory", ".", "/"])
@pytest.mark.usefixtures("here")
def test_a_file_that_cannot_be_written(
    mempool: Mempool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, file: str
) -> None:
    (tmp_path / "directory").mkdir()
    monkeypatch.chdir(tmp_path)
    done = mempool("--sim", "4", "repro", "host-pool-revoke", option, file)
    assert done.status == 74
    assert f"error: {file} cannot be written: " in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]


@pytest.mark.usefixtures("here")
def test_what_is_no_plain_file_stays(mempool: Mempool, tmp_path: Path) -> None:
    """A link is written through, as `/dev/stdout` has to be: replaced, it would be gone."""
    link, file = tmp_path / "link", tmp_path / "file"
    file.write_text("")
    link.symlink_to(file)
    assert mempool("--sim", "4", "repro", "host-pool-revoke", "--report", str(link)).status == 0
    assert link.is_symlink()
    assert json.loads(file.read_text())["schema"] == "mempool-report/1"


@pytest.mark.parametrize("bug", [None, *BUGS, *TRAPS])
@pytest.mark.usefixtures("here")
def test_a_c_file(mempool: Mempool, tmp_path: Path, bug: str | None) -> None:
    file = tmp_path / "bug.c"
    plain = mempool("--sim", "1", "repro", *([bug] if bug else []), "--repeat", "1", "--attempts", "16")
    done = mempool(
        *("--sim", "1", "repro", *([bug] if bug else [])),
        *("--repeat", "1", "--attempts", "16", "--emit-c", str(file)),
    )
    assert done == plain
    text = file.read_text()
    assert text.startswith(f"/*\n * {bug or 'recycled-handle'}: ")
    assert " * Seen on   simulated machine 1, " in text
    assert [path.name for path in tmp_path.iterdir()] == ["bug.c"]


def constants(file: Path) -> tuple[str, ...]:
    """OWNER, ACCESSOR and LIMIT_SECONDS of a C file."""
    text = file.read_text()
    patterns = (r"#define OWNER (-?\d+)", r"#define ACCESSOR (-?\d+)", r"LIMIT_SECONDS = (\d+)")
    return tuple(number for pattern in patterns for number in re.findall(pattern, text))


@pytest.mark.parametrize(
    ("spec", "arguments", "expected"),
    [
        ("4", (), ("-1", "-1", "60")),
        ("4", ("--limit", "7"), ("-1", "-1", "7")),
        ("4", ("--owner", "3"), ("3", "-1", "60")),
        ("no-p2p-2", ("--owner", "1", "--accessor", "0"), ("1", "0", "60")),
        ("asym-3", ("--owner", "0000:03:00.0"), ("1", "-1", "60")),
        ("1", ("--accessor", "GPU-6090"), ("-1", "0", "60")),
        ("0", ("--owner", "2", "--accessor", "GPU-8fc8"), ("2", "-1", "60")),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_c_file_has_what_was_asked_for(
    mempool: Mempool, tmp_path: Path, spec: str, arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """Also where no pair was found, or no device: the program is for another machine."""
    file = tmp_path / "bug.c"
    mempool("--sim", spec, "repro", *QUICK, *("--attempts", "16", *arguments, "--emit-c", str(file)))
    assert constants(file) == expected


@pytest.mark.usefixtures("here")
def test_what_cannot_be_written_costs_no_verdict(mempool: Mempool) -> None:
    done = mempool("--sim", "4", "repro", *QUICK, "--report", "/dev/full")
    assert done.status == 74
    assert ": not-affected: " in done.out
    assert done.err.endswith("error: /dev/full cannot be written: No space left on device [output]\n")
    affected = mempool("--sim", AFFECTED, "repro", *QUICK, "--report", "/dev/full")
    assert affected.status == 1
    assert "warning: /dev/full cannot be written: No space left on device [output]\n" in affected.err


# --- words that do not go together ---


@pytest.mark.parametrize("words", [["nosuch"], ["--emit-c", "bug.c"], ["--report", "report.json"]])
def test_a_list_runs_nothing(mempool: Mempool, words: list[str]) -> None:
    done = mempool("repro", "--list", *words)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("error: --list runs nothing: no NAME, --report or --emit-c with it [usage]\n")


def test_faults_of_an_arm_that_is_left_out(mempool: Mempool) -> None:
    done = mempool("--sim", "4", "repro", "--allow-faults", "--cleanup", "none")
    assert done == Done(2, "", "error: --allow-faults is about an arm that --cleanup leaves out [usage]\n")


@pytest.mark.parametrize(
    ("name", "build"),
    [("my-bug.c", "my-bug"), ("a b.c", "owner_in_batch"), ("-x.c", "owner_in_batch"), ("program", "owner_in_batch")],
)
@pytest.mark.usefixtures("here")
def test_the_program_says_how_it_is_built(mempool: Mempool, tmp_path: Path, name: str, build: str) -> None:
    """By the name that it was given, where a shell would take that for what it is."""
    file = tmp_path / name
    mempool("--sim", "2", "repro", "owner-in-batch", "--emit-c", str(file))
    assert f" * Build     cc {build}.c -lcuda -o {build}\n" in file.read_text()
