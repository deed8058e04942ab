"""`mempool revoke`: the owner is never in it, and it needs no capability."""

from __future__ import annotations

import pytest

from .conftest import Mempool
from .machines import FRESH, HELD, SEEN, calls, label

NO_SESSION = (
    "error: no simulated session 'default' runs [no-session]\n"
    "  try: `mempool --sim 4 session list` shows those that do; `mempool --sim 4 session start` starts one\n"
)


def test_one_device_loses_access(mempool: Mempool) -> None:
    mempool("--sim", "4", "grant", "0", "--to", "all")
    done = mempool("--sim", "4", "revoke", "0", "--from", "1", "--trace")
    assert calls(done.err, "cuMemPoolSetAccess") == [
        "cuMemPoolSetAccess(0x550000000000, [device 1 NONE]) = CUDA_SUCCESS"
    ]
    assert (done.status, done.out) == (
        0,
        label("4") + "pool default:0: access revoked from device 1 (1 cuMemPoolSetAccess call)\n"
        "access now: owner 0; RW 2-3; none 1\n" + HELD,
    )


def test_a_revoke_of_everyone_leaves_the_owner_out(mempool: Mempool) -> None:
    """A call that lists the owner is refused whole: public code cleared nothing for months that way."""
    mempool("--sim", "4", "grant", "0", "--to", "1", "3")
    done = mempool("--sim", "4", "revoke", "0", "--from", "all", "--trace")
    assert calls(done.err, "cuMemPoolSetAccess") == [
        "cuMemPoolSetAccess(0x550000000000, [device 1 NONE, device 3 NONE]) = CUDA_SUCCESS"
    ]
    assert done.out == (
        label("4") + "pool default:0: access revoked from devices 1, 3 (1 cuMemPoolSetAccess call)\n"
        "already so: device 2\n"
        "access now: owner 0; none 1-3\n" + HELD
    )
    again = mempool("--sim", "4", "revoke", "0", "--from", "all", "--trace")
    assert (again.status, calls(again.err, "cuMemPoolSetAccess")) == (0, [])
    assert again.out == (
        label("4") + "pool default:0: nothing to do (no cuMemPoolSetAccess call)\n"
        "already so: devices 1-3\n"
        "access now: owner 0; none 1-3\n" + SEEN
    )


def test_with_one_device_there_is_nobody_to_revoke_from(mempool: Mempool) -> None:
    assert mempool("--sim", "h200", "--no-session", "revoke", "0", "--from", "all") == (
        0,
        label("h200") + "pool default:0: nothing to do (no cuMemPoolSetAccess call)\naccess now: owner 0\n" + FRESH,
        "",
    )


def test_the_owner_named_is_told_that_it_cannot_lose_access(mempool: Mempool) -> None:
    """The driver would say "invalid device ordinal", and people look for a wrong index."""
    mempool("--sim", "4", "grant", "0", "--to", "1")
    for words in (["0"], ["1", "0"], ["all", "0"], ["0-3"], ["GPU-6090"]):
        done = mempool("--sim", "4", "revoke", "0", "--from", *words, "--trace")
        assert calls(done.err, "cuMemPoolSetAccess") == []
        assert (done.status, done.out) == (2, "")
        assert done.err.splitlines()[-2:] == [
            "error: device 0 owns pool default:0: the owner cannot lose access; nothing was changed [owner-access]",
            "  try: leave it out; `--from all` means every other device",
        ]
    assert "default:0  default,current  0   owner 0; RW 1; none 2-3\n" in mempool("--sim", "4", "probe").out


def test_a_device_that_does_not_exist_is_caught_before_the_call(mempool: Mempool) -> None:
    mempool("--sim", "4", "grant", "0", "--to", "1")
    done = mempool("--sim", "4", "revoke", "0", "--from", "1", "9", "--trace")
    assert (done.status, calls(done.err, "cuMemPoolSetAccess")) == (2, [])
    assert done.err.splitlines()[-2:] == [
        "error: there is no device 9: devices 0 to 3 are visible [unknown-device]",
        "  try: `mempool --sim 4 devices` lists them",
    ]
    assert "owner 0; RW 1; none 2-3" in mempool("--sim", "4", "probe", "0").out


def test_a_host_pool_can_lose_every_device(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "numa:0", "--name", "n", "--to", "all")
    assert mempool("--sim", "4", "revoke", "n", "--from", "0-3").out == (
        label("4")
        + "pool n: access revoked from devices 0-3 (1 cuMemPoolSetAccess call)\naccess now: none 0-3\n"
        + HELD
    )


def test_cards_without_pools_have_nothing_to_lose(mempool: Mempool) -> None:
    done = mempool("--sim", "mixed-4", "--no-session", "revoke", "0", "--from", "all")
    assert (done.status, done.err) == (0, "")
    assert "already so: devices 1-3\naccess now: owner 0; none 1, 3; no pool support 2\n" in done.out


def test_a_dry_run_changes_nothing(mempool: Mempool) -> None:
    mempool("--sim", "4", "grant", "0", "--to", "1", "2")
    done = mempool("--sim", "4", "revoke", "0", "--from", "2", "3", "--dry-run", "--trace")
    assert (done.status, calls(done.err, "cuMemPoolSetAccess")) == (0, [])
    assert done.out == (
        label("4") + "pool default:0: access would be revoked from device 2 (dry run, no call made)\n"
        "already so: device 3\n"
        "access now: owner 0; RW 1-2; none 3\n" + SEEN
    )


def test_without_a_session_there_is_nothing_to_revoke(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "revoke", "0", "--from", "1") == (5, "", NO_SESSION)
    assert mempool("--sim", "4", "session", "list").out == "no session runs\n"


def test_a_dry_run_needs_no_session_and_starts_none(mempool: Mempool) -> None:
    done = mempool("--sim", "4", "revoke", "0", "--from", "1", "--dry-run")
    assert done.status == 0
    assert "pool default:0: nothing to do (dry run, no call made)\nalready so: device 1\n" in done.out
    assert "in a new process pools start ungranted" in done.out
    assert mempool("--sim", "4", "session", "list").out == "no session runs\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["0", "--from"], "error: --from needs at least one device and got nothing [usage]"),
        (["0"], "error: Missing option '--from'. [usage]"),
        (
            ["--from", "1", "0"],
            "error: missing POOL: it comes before --from, which takes every word after it"
            " (mempool revoke POOL --from DEV...) [usage]",
        ),
    ],
)
def test_a_missing_word_is_asked_for(mempool: Mempool, arguments: list[str], message: str) -> None:
    assert mempool("--sim", "4", "revoke", *arguments) == (2, "", f"{message}\n  try: see `mempool revoke --help`\n")
