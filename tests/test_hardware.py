"""Which hardware tests can run: a machine without P2P is no failure of theirs."""

from __future__ import annotations

import pytest
from standin.conftest import standin as standin
from standin.stand_in import StandIn

import hardware


@pytest.mark.standin
@pytest.mark.parametrize(("spec", "apart"), [("2", ""), ("no-p2p-2", "[(0, 1), (1, 0)]"), ("asym-3", "[(0, 1)]")])
def test_the_driver_says_who_cannot_reach_whom(standin: StandIn, spec: str, apart: str) -> None:
    with standin.machine(spec) as socket:
        done = standin.run_python(hardware.REACH, socket)
    assert (done.returncode, done.stdout.strip()) == (0, apart), done.stderr


@pytest.mark.parametrize(
    ("count", "apart", "why"),
    [
        (1, None, "needs 2 CUDA devices, this machine has 1"),
        (2, "[(0, 1)]", "devices 0 and 1 cannot reach each other: (accessor, owner) [(0, 1)]"),
        (2, None, "the driver does not say whether devices 0 and 1 can reach each other"),
        (2, "", ""),
    ],
)
def test_why_tests_of_peers_are_skipped(
    count: int, apart: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "device_count", lambda: count)
    monkeypatch.setattr(hardware, "_answer", lambda program: apart)
    assert hardware.no_peers.__wrapped__() == why
