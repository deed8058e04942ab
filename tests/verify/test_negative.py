"""Kernels without access: what is made of them, beside twins that differ only in the grant."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
import pytest
from cli.machines import failure, machine

from mempool_cli.child import Outcome, Reports
from mempool_cli.driver import driver_source
from mempool_cli.errors import DriverWords
from mempool_cli.model import UngrantedCopy
from mempool_cli.verify.negative import READY, CopiesPlan, Seen, Variant, Way, copies, judge

from .here import Heard, place, without_access

ILLEGAL = DriverWords("cuStreamSynchronize", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
OTHER = DriverWords("cuLaunchKernel", 719, "CUDA_ERROR_LAUNCH_FAILED")
REFUSED = DriverWords("cuMemcpyAsync", 1, "CUDA_ERROR_INVALID_VALUE")
THROUGH = Seen(flags=3, arrived=True, effect=True)

each_way = pytest.mark.parametrize("way", ["write", "read"])
each_variant = pytest.mark.parametrize("variant", ["never-granted", "revoked"])


@each_way
@each_variant
@pytest.mark.parametrize("owner", [0, None], ids=["device", "host"])
def test_it_is_kept_out(owner: int | None, variant: Variant, way: Way) -> None:
    seen = without_access("2", owner, 1, variant, way)
    assert (seen.flags, seen.answer, seen.before) == (0, ILLEGAL, None)
    assert seen.effect is (False if way == "write" else None), "a context that is lost cannot look at its own memory"
    assert without_access("2", owner, 1, variant, way, granted=True) == THROUGH


@each_way
@each_variant
@pytest.mark.parametrize(("owner", "pair"), [(0, "0-1"), (None, "host-1")], ids=["device", "host"])
def test_it_leaks(owner: int | None, pair: str, variant: Variant, way: Way) -> None:
    assert without_access(f"2,fault=leak:{pair}", owner, 1, variant, way) == Seen(flags=0, arrived=True, effect=True)


@each_way
def test_a_revoke_that_does_not_take(way: Way) -> None:
    assert without_access("2,fault=host-pool-revoke", None, 1, "revoked", way) == THROUGH


def test_a_device_that_may_use_all_memory_of_the_host(tmp_path: Path) -> None:
    spec = machine(tmp_path, "[[device]]\npageable_memory_access = true\n")
    assert without_access(spec, None, 0, "never-granted", "write").pageable


def outcome(seen: Seen | None, **fields: object) -> Outcome:
    if seen is None:
        return msgspec.convert({"ended": "exit", **fields}, Outcome)
    return Outcome(ended="returned", result=msgspec.json.encode(seen))


@pytest.mark.parametrize(
    ("seen", "verdict", "why"),
    [
        (Seen(flags=0, answer=ILLEGAL), "blocked", "it faulted"),
        (Seen(flags=0, answer=ILLEGAL, effect=False), "blocked", "it faulted, and changed nothing"),
        (Seen(flags=0, answer=ILLEGAL, effect=True), "leaked", "it got through, while access reads NONE"),
        (Seen(flags=0, effect=True), "leaked", "it got through, while access reads NONE"),
        (
            Seen(flags=0, effect=True, pageable=True),
            "inconclusive",
            "it got through, and the device may use any memory of the host",
        ),
        (Seen(flags=0, effect=False), "dropped", "it changed nothing, and the driver said SUCCESS"),
        (Seen(flags=3, answer=ILLEGAL), "inconclusive", "access reads 0x3 where it should be none"),
        (
            Seen(flags=0, answer=OTHER),
            "error",
            "cuLaunchKernel answered CUDA_ERROR_LAUNCH_FAILED, not an illegal address",
        ),
        (Seen(before="out of memory", spent=True), "inconclusive", "out of memory"),
        (Seen(before="cuMemPoolCreate failed"), "error", "cuMemPoolCreate failed"),
    ],
)
def test_the_verdict(seen: Seen, verdict: str, why: str) -> None:
    assert judge("write", [outcome(THROUGH), outcome(seen)])[:2] == (verdict, why)


def test_nothing_of_the_payload_was_read() -> None:
    garbage = Seen(flags=0, effect=False)
    assert judge("read", [outcome(THROUGH), outcome(garbage)])[:2] == (
        "dropped",
        "it got nothing of the payload, and the driver said SUCCESS",
    )


def test_a_revoke_that_left_access_and_let_through_is_a_leak() -> None:
    verdict, why, _ = judge("write", [outcome(THROUGH), outcome(THROUGH)])
    assert (verdict, why) == ("leaked", "it got through: access was to be revoked, and still reads 0x3")


@pytest.mark.parametrize(
    ("ended", "verdict", "why"),
    [
        (
            {"ended": "hung", "last_call": "cuStreamSynchronize()", "parts": (READY,)},
            "hang",
            "the process did not end in time and was killed in cuStreamSynchronize()",
        ),
        (
            {"ended": "hung", "last_call": "cuInit()"},
            "error",
            "the process did not end in time and was killed in cuInit()",
        ),
        ({"ended": "signal", "signal": "SIGSEGV"}, "error", "the process was killed by SIGSEGV"),
        ({"ended": "exit", "status": 1, "words": "E: no"}, "error", "the process ended with status 1: E: no"),
    ],
)
def test_its_process_does_not_come_to_its_end(ended: dict[str, object], verdict: str, why: str) -> None:
    assert judge("write", [outcome(THROUGH), outcome(None, **ended)])[:2] == (verdict, why)


@pytest.mark.parametrize(
    ("twin", "why"),
    [
        (outcome(Seen(flags=3, arrived=False, effect=True)), "its payload did not arrive"),
        (outcome(Seen(flags=3, answer=ILLEGAL)), "cuStreamSynchronize = CUDA_ERROR_ILLEGAL_ADDRESS"),
        (outcome(Seen(before="out of memory")), "out of memory"),
        (outcome(None, ended="hung"), "the process did not end in time and was killed"),
    ],
)
def test_without_its_twin_it_proves_nothing(twin: Outcome, why: str) -> None:
    blocked = outcome(Seen(flags=0, answer=ILLEGAL))
    words = f"its twin, which differs only in the grant, did not get through: {why}"
    assert judge("write", [twin, blocked])[:2] == ("inconclusive", words)


def test_a_twin_alone_is_no_leak() -> None:
    """It got through, as it should, and its process stays: the kernel without access never ran."""
    twin = msgspec.structs.replace(outcome(THROUGH), remains=4711)
    assert judge("write", [twin]) == (
        "inconclusive",
        "only its twin, which differs in the grant, was tried: "
        "the process has returned; SIGKILL does not end it: pid 4711 remains",
        None,
    )


@pytest.mark.parametrize(
    ("owner", "wanted"),
    [
        (
            0,
            [
                UngrantedCopy(path="copy-write", arrived=False, driver=REFUSED),
                UngrantedCopy(path="copy-read", arrived=False, driver=REFUSED),
                UngrantedCopy(path="peer-copy-write", arrived=True),
                UngrantedCopy(path="peer-copy-read", arrived=True),
            ],
        ),
        (None, [UngrantedCopy(path="copy-write", arrived=True), UngrantedCopy(path="copy-read", arrived=True)]),
    ],
    ids=["device", "host"],
)
def test_copies_are_recorded(owner: int | None, wanted: list[UngrantedCopy]) -> None:
    assert copied("2", owner) == (wanted, b"")


def copied(spec: str, owner: int | None) -> tuple[list[UngrantedCopy], bytes]:
    """What the child of copies tells, and returns."""
    heard = Heard()
    plan = CopiesPlan(source=driver_source(spec).encode().decode(), owner=place(owner), accessor=1)
    done = copies(msgspec.json.encode(plan), cast(Reports, heard))
    found = [part for part in heard.parts if part != b"alive"]
    return [msgspec.json.decode(part, type=UngrantedCopy) for part in found], done


def test_a_copy_that_faults_is_recorded_and_those_after_it_say_why_not(tmp_path: Path) -> None:
    """Device 1 has waited 6 times before: for its memory, four times, and for what lies there."""
    cards = "[[device]]\ncount = 2\n[p2p]\nall = true\n"
    fault = failure("cuStreamSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", device=1, after=6)
    found, why = copied(machine(tmp_path, cards, fault), None)
    assert found == [UngrantedCopy(path="copy-write", arrived=False, driver=ILLEGAL)]
    assert why == b"cuStreamSynchronize = CUDA_ERROR_ILLEGAL_ADDRESS beside the copy itself"


def test_why_no_copy_was_tried(tmp_path: Path) -> None:
    cards = "[[device]]\ncount = 2\n[p2p]\nall = true\n"
    spec = machine(tmp_path, cards, failure("cuMemPoolCreate", "CUDA_ERROR_OUT_OF_MEMORY"))
    assert copied(spec, 0) == ([], b"out of memory")
