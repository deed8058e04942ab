"""`mempool grant`: who gets access, in one call, and who is refused before it."""

from __future__ import annotations

import json

import pytest

from .conftest import Mempool
from .machines import ENDED, FRESH, HELD, SEEN, STARTED, calls, label

PROBED = "pool       kind             on  access\n"


def test_a_grant_is_seen_by_another_command(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "grant", "0", "--to", "1", "2") == (
        0,
        """\
SIMULATED machine 4: no hardware was asked
pool default:0: access granted to devices 1-2 (1 cuMemPoolSetAccess call)
access now: owner 0; RW 1-2; none 3
affects only session default (pid PID), held until TIME unless used; no other process
""",
        "started simulated session default (pid PID)\n",
    )
    assert mempool("--sim", "4", "probe", "0").out.splitlines()[2] == (
        "default:0  default,current  0   owner 0; RW 1-2; none 3"
    )


def test_all_devices_get_access_in_one_call_and_the_second_time_in_none(mempool: Mempool) -> None:
    first = mempool("--sim", "4", "grant", "0", "--to", "all", "--trace")
    assert (first.status, calls(first.err, "cuMemPoolSetAccess")) == (
        0,
        [
            "cuMemPoolSetAccess(0x550000000000, [device 1 READWRITE, device 2 READWRITE, device 3 READWRITE])"
            " = CUDA_SUCCESS"
        ],
    )
    again = mempool("--sim", "4", "grant", "0", "--to", "all", "--trace")
    assert (again.status, calls(again.err, "cuMemPoolSetAccess")) == (0, [])
    assert again.out == (
        label("4") + "pool default:0: nothing to do (no cuMemPoolSetAccess call)\n"
        "already so: devices 1-3\n"
        "access now: owner 0; RW 1-3\n" + SEEN
    )


def test_seven_grants_are_one_call(mempool: Mempool) -> None:
    done = mempool("--sim", "dgx-h200", "--no-session", "grant", "0", "--to", *"1234567", "--trace")
    assert (done.status, len(calls(done.err, "cuMemPoolSetAccess"))) == (0, 1)
    assert done.out == (
        label("dgx-h200") + "pool default:0: access granted to devices 1-7 (1 cuMemPoolSetAccess call)\n"
        "access now: owner 0; RW 1-7\n" + ENDED
    )


def test_the_access_is_read_back_from_the_pool_that_was_changed(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "0", "--name", "mine")
    done = mempool("--sim", "4", "grant", "mine", "--to", "1", "--trace")
    changed = calls(done.err, "cuMemPoolSetAccess")[0].split(",")[0].partition("(")[2]
    read = {call.split(",")[0].partition("(")[2] for call in calls(done.err, "cuMemPoolGetAccess")}
    assert read == {changed}
    assert mempool("--sim", "4", "probe", "0", "mine").out == (
        label("4") + PROBED + "default:0  default,current  0   owner 0; none 1-3\n"
        "mine       created          0   owner 0; RW 1; none 2-3\n"
        "\n" + SEEN
    )


@pytest.mark.parametrize(
    "words",
    [
        ["1", "2", "3"],
        ["1,2,3"],
        ["1-3"],
        ["1", "2-3"],
        ["0-3"],
        ["3", "1", "2", "1", "1-3"],
        ["GPU-e60664c9", "gpu-DDD6", "GPU-1b425078-55a2-5f85-a8c2-bfa69abc09bb"],
        ["0000:03:00.0", "00000000:05:00.0", "07:00"],
        ["all"],
        ["peers"],
        ["all", "1", "peers"],
    ],
)
def test_devices_can_be_named_in_many_ways(mempool: Mempool, words: list[str]) -> None:
    done = mempool("--sim", "4", "--no-session", "grant", "0", "--to", *words, "--trace")
    entries = "device 1 READWRITE, device 2 READWRITE, device 3 READWRITE"
    assert calls(done.err, "cuMemPoolSetAccess") == [f"cuMemPoolSetAccess(0x550000000000, [{entries}]) = CUDA_SUCCESS"]
    assert "access now: owner 0; RW 1-3\n" in done.out


@pytest.mark.parametrize("pool", ["2", "default:2", "current:2", "GPU-ddd6", "default:GPU-ddd6", "0000:05:00.0"])
def test_pools_can_be_named_by_their_device(mempool: Mempool, pool: str) -> None:
    assert (
        "pool default:2: access granted to device 1 "
        in mempool("--sim", "4", "--no-session", "grant", pool, "--to", "1").out
    )


def test_the_owner_is_left_out_and_said_to_be(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "--no-session", "grant", "0", "--to", "0", "1") == (
        0,
        label("4") + "pool default:0: access granted to device 1 (1 cuMemPoolSetAccess call)\n"
        "left out: the owner device 0, which always has access\n"
        "access now: owner 0; RW 1; none 2-3\n" + ENDED,
        "",
    )
    assert mempool("--sim", "4", "--no-session", "grant", "0", "--to", "0") == (
        0,
        label("4") + "pool default:0: nothing to do (no cuMemPoolSetAccess call)\n"
        "left out: the owner device 0, which always has access\n"
        "access now: owner 0; none 1-3\n" + FRESH,
        "",
    )


def test_a_device_that_has_access_already_needs_no_entry(mempool: Mempool) -> None:
    mempool("--sim", "4", "grant", "0", "--to", "1")
    done = mempool("--sim", "4", "grant", "0", "--to", "1", "2", "1", "--trace")
    assert calls(done.err, "cuMemPoolSetAccess") == [
        "cuMemPoolSetAccess(0x550000000000, [device 2 READWRITE]) = CUDA_SUCCESS"
    ]
    assert done.out == (
        label("4") + "pool default:0: access granted to device 2 (1 cuMemPoolSetAccess call)\n"
        "already so: device 1\n"
        "access now: owner 0; RW 1-2; none 3\n" + HELD
    )


# --- exactly these ---


def test_only_takes_access_from_the_others_in_the_same_call(mempool: Mempool) -> None:
    mempool("--sim", "4", "grant", "0", "--to", "1", "2")
    done = mempool("--sim", "4", "grant", "0", "--to", "2", "3", "--only", "--trace")
    assert calls(done.err, "cuMemPoolSetAccess") == [
        "cuMemPoolSetAccess(0x550000000000, [device 3 READWRITE, device 1 NONE]) = CUDA_SUCCESS"
    ]
    assert done.out == (
        label("4")
        + "pool default:0: access granted to device 3, revoked from device 1 (1 cuMemPoolSetAccess call)\n"
        + "already so: device 2\n"
        + "access now: owner 0; RW 2-3; none 1\n"
        + HELD
    )


def test_only_the_owner_is_nobody_else(mempool: Mempool) -> None:
    mempool("--sim", "4", "grant", "0", "--to", "1", "2")
    assert mempool("--sim", "4", "grant", "0", "--to", "0", "--only").out == (
        label("4") + "pool default:0: access revoked from devices 1-2 (1 cuMemPoolSetAccess call)\n"
        "left out: the owner device 0, which always has access\n"
        "access now: owner 0; none 1-3\n" + HELD
    )


# --- machines on which not everybody reaches everybody ---


def test_a_device_that_cannot_reach_the_owner_is_refused_before_the_call(mempool: Mempool) -> None:
    done = mempool("--sim", "no-p2p-2", "grant", "0", "--to", "1")
    assert done == (
        3,
        "",
        label("no-p2p-2") + "error: device 1 cannot reach device 0, so no access can be granted to pool default:0;"
        " nothing was changed [not-peer-capable]\n"
        "  try: `--to peers` takes those that can, `mempool --sim no-p2p-2 devices` shows them; `grant --force` tries"
        " anyway, and then the next allocation may fail\n",
    )
    assert calls(mempool("--sim", "no-p2p-2", "grant", "0", "--to", "1", "--trace").err, "cuMemPoolSetAccess") == []
    assert mempool("--sim", "no-p2p-2", "session", "list").out == "no session runs\n"


def test_all_devices_that_cannot_are_named_at_once(mempool: Mempool) -> None:
    done = mempool("--sim", "pcie-4", "--no-session", "grant", "0", "--to", "all")
    assert (done.status, done.out) == (3, "")
    assert done.err.splitlines()[1] == (
        "error: devices 2-3 cannot reach device 0, so no access can be granted to pool default:0;"
        " nothing was changed [not-peer-capable]"
    )


def test_peers_are_those_that_can(mempool: Mempool) -> None:
    assert mempool("--sim", "pcie-4", "--no-session", "grant", "2", "--to", "peers").out == (
        label("pcie-4") + "pool default:2: access granted to device 3 (1 cuMemPoolSetAccess call)\n"
        "access now: owner 2; RW 3; not capable 0-1\n" + ENDED
    )
    assert mempool("--sim", "no-p2p-2", "--no-session", "grant", "0", "--to", "peers").out == (
        label("no-p2p-2") + "pool default:0: nothing to do (no cuMemPoolSetAccess call)\n"
        "access now: owner 0; not capable 1\n" + FRESH
    )


def test_capability_is_asked_from_the_accessor_to_the_owner(mempool: Mempool) -> None:
    """On asym-3 device 1 reaches device 0, and device 0 does not reach device 1."""
    done = mempool("--sim", "asym-3", "--no-session", "grant", "0", "--to", "1", "--trace")
    assert done.status == 0
    assert calls(done.err, "cuDeviceCanAccessPeer")[:2] == [
        "cuDeviceCanAccessPeer(1, 0) = 1",
        "cuDeviceCanAccessPeer(2, 0) = 1",
    ]
    refused = mempool("--sim", "asym-3", "--no-session", "grant", "1", "--to", "0", "2")
    assert (refused.status, refused.err.splitlines()[1]) == (
        3,
        "error: devices 0, 2 cannot reach device 1, so no access can be granted to pool default:1;"
        " nothing was changed [not-peer-capable]",
    )


def test_force_shows_the_contradiction_and_says_what_will_fail(mempool: Mempool) -> None:
    assert mempool("--sim", "no-p2p-2", "grant", "0", "--to", "1", "--force") == (
        0,
        label("no-p2p-2") + "pool default:0: access granted to device 1 (1 cuMemPoolSetAccess call)\n"
        "access now: owner 0; RW but not capable 1\n" + HELD,
        STARTED
        + "warning: device 1 cannot reach device 0: with this access the next allocation from pool default:0 will fail"
        " [granted-without-p2p]\n",
    )
    assert mempool("--sim", "no-p2p-2", "probe", "--matrix").out.splitlines()[1:5] == [
        "pool       kind             on  host  0    1",
        "default:0  default,current  0   -     own  RW!",
        "default:1  default,current  1   -     np   own",
        "",
    ]
    # Taking it away again needs no capability.
    assert mempool("--sim", "no-p2p-2", "revoke", "0", "--from", "1").out == (
        label("no-p2p-2") + "pool default:0: access revoked from device 1 (1 cuMemPoolSetAccess call)\n"
        "access now: owner 0; not capable 1\n" + HELD
    )


def test_a_card_without_pools_cannot_be_granted_even_by_force(mempool: Mempool) -> None:
    for force in ([], ["--force"]):
        assert mempool("--sim", "mixed-4", "--no-session", "grant", "0", "--to", "all", *force) == (
            3,
            "",
            label("mixed-4") + "error: device 2 cannot use memory pools, so no access can be granted to pool default:0;"
            " nothing was changed [no-pool-support]\n  try: `--to peers` takes those that can\n",
        )
    assert (
        "access now: owner 0; RW 1, 3; no pool support 2\n"
        in mempool("--sim", "mixed-4", "--no-session", "grant", "0", "--to", "peers", "--only").out
    )


def test_a_host_pool_has_no_owner_to_leave_out(mempool: Mempool) -> None:
    mempool("--sim", "pcie-4", "create", "host", "--name", "h")
    assert mempool("--sim", "pcie-4", "grant", "h", "--to", "all").out == (
        label("pcie-4") + "pool h: access granted to devices 0-3 (1 cuMemPoolSetAccess call)\n"
        "access now: RW 0-3\n" + HELD
    )


# --- a dry run ---


def test_a_dry_run_prints_the_plan_and_starts_no_session(mempool: Mempool) -> None:
    done = mempool("--sim", "4", "grant", "0", "--to", "1", "0", "2-3", "--dry-run", "--trace")
    assert (done.status, calls(done.err, "cuMemPoolSetAccess")) == (0, [])
    assert done.out == (
        label("4") + "pool default:0: access would be granted to devices 1-3 (dry run, no call made)\n"
        "left out: the owner device 0, which always has access\n"
        "access now: owner 0; none 1-3\n" + FRESH
    )
    assert mempool("--sim", "4", "session", "list").out == "no session runs\n"


def test_a_dry_run_asks_the_session_that_runs_and_changes_nothing_in_it(mempool: Mempool) -> None:
    mempool("--sim", "4", "grant", "0", "--to", "1")
    assert mempool("--sim", "4", "grant", "0", "--to", "3", "--only", "--dry-run").out == (
        label("4")
        + "pool default:0: access would be granted to device 3, revoked from device 1 (dry run, no call made)\n"
        + "access now: owner 0; RW 1; none 2-3\n"
        + SEEN
    )
    assert "default:0  default,current  0   owner 0; RW 1; none 2-3\n" in mempool("--sim", "4", "probe").out


def test_a_dry_run_refuses_what_the_real_one_would(mempool: Mempool) -> None:
    done = mempool("--sim", "no-p2p-2", "grant", "0", "--to", "1", "--dry-run")
    assert (done.status, done.out) == (3, "")
    assert "[not-peer-capable]" in done.err


def test_a_forced_dry_run_says_what_would_fail(mempool: Mempool) -> None:
    assert mempool("--sim", "no-p2p-2", "grant", "0", "--to", "1", "--force", "--dry-run") == (
        0,
        label("no-p2p-2") + "pool default:0: access would be granted to device 1 (dry run, no call made)\n"
        "access now: owner 0; not capable 1\n" + FRESH,
        "warning: device 1 cannot reach device 0: with this access the next allocation from pool default:0 will fail"
        " [granted-without-p2p]\n",
    )


# --- words that mean nothing ---


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (
            ["0", "--to", "9"],
            "there is no device 9: devices 0 to 3 are visible [unknown-device]",
            "`mempool --sim 4 dev",
        ),
        (["0", "--to", "1", "9"], "there is no device 9: devices 0 to 3 are visible [unknown-device]", "`mempool"),
        (["0", "--to", "GPU-"], "'GPU-' names no device [unknown-device]", "a device is an ordinal (0)"),
        (["0", "--to", "GPU-nope"], "'GPU-nope' names no device [unknown-device]", "a device is an ordinal (0)"),
        (
            ["0", "--to", "-1"],
            "--to needs at least one device and got nothing before '-1' [usage]",
            "see `mempool grant",
        ),
        (["0", "--to"], "--to needs at least one device and got nothing before '--trace' [usage]", "see `mempool"),
        (["0", "--to", ""], "--to needs at least one device and got an empty word [usage]", "see `mempool grant"),
        (["0", "--to", "", "--only"], "--to needs at least one device and got an empty word [usage]", "see `mempool"),
        (["0"], "Missing option '--to'. [usage]", "see `mempool grant --help`"),
        (
            ["--to", "1", "2", "0"],
            "missing POOL: it comes before --to, which takes every word after it (mempool grant POOL --to DEV...)"
            " [usage]",
            "see `mempool grant --help`",
        ),
        (["0", "1", "--to", "2"], "Got unexpected extra argument (1) [usage]", "see `mempool grant --help`"),
        (["0", "--to", "1,,2"], "'1,,2' has an empty place where a device should be [usage]", "see `mempool grant"),
        (["0", "--to", "3-1"], "'3-1' is no range of devices [usage]", "see `mempool grant --help`"),
        (["0", "--to", "FF:00.0"], "no visible device is FF:00.0: devices 0 to 3 are visible [unknown-device]", "`mem"),
        (["0", "--to", "GPU-f"], "no visible device is GPU-f: devices 0 to 3 are visible [unknown-device]", "`mempool"),
        (
            ["9", "--to", "1"],
            "there is no device 9: devices 0 to 3 are visible [unknown-device]",
            "`mempool --sim 4 dev",
        ),
        (["nope", "--to", "1"], "there is no pool 'nope'; created here: none [unknown-pool]", "a pool is a na"),
        (["host", "--to", "1"], "there is no pool 'host'; created here: none [unknown-pool]", "a pool is a na"),
    ],
)
def test_a_wrong_word_is_named_and_nothing_is_changed(
    mempool: Mempool, arguments: list[str], message: str, hint: str
) -> None:
    done = mempool("--sim", "4", "--no-session", "grant", *arguments, "--trace")
    assert (done.status, done.out) == (2, "")
    error, attempt = [line for line in done.err.splitlines() if line.startswith(("error: ", "  try: "))]
    assert error.removeprefix("error: ").endswith(message)
    assert attempt.removeprefix("  try: ").startswith(hint)
    assert calls(done.err, "cuMemPoolSetAccess") == []


def test_a_wrong_word_leaves_the_grants_of_a_session_as_they_are(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "grant", "0", "--to", "9").status == 2
    assert mempool("--sim", "4", "session", "list").out == "no session runs\n"
    mempool("--sim", "4", "grant", "0", "--to", "1")
    for words in (["2", "9"], ["2", "GPU-nope"], ["9", "--only"]):
        assert mempool("--sim", "4", "grant", "0", "--to", *words).status == 2
    assert "default:0  default,current  0   owner 0; RW 1; none 2-3\n" in mempool("--sim", "4", "probe").out


def test_a_uuid_that_fits_two_devices_names_them(mempool: Mempool) -> None:
    uuids = [device["uuid"] for device in _devices(mempool, "32")]
    first = next(digit for digit in "0123456789abcdef" if sum(u.startswith(f"GPU-{digit}") for u in uuids) == 2)
    one, two = (number for number, u in enumerate(uuids) if u.startswith(f"GPU-{first}"))
    both = f"{one}-{two}" if two == one + 1 else f"{one}, {two}"
    ambiguous = mempool("--sim", "32", "--no-session", "grant", "0", "--to", f"GPU-{first}")
    assert (ambiguous.status, ambiguous.err) == (
        2,
        label("32") + f"error: GPU-{first} fits devices {both} [unknown-device]\n"
        "  try: `mempool --sim 32 devices` lists UUIDs and bus ids\n",
    )


def _devices(mempool: Mempool, spec: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(mempool("--sim", spec, "--format", "json", "devices").out)["data"][
        "devices"
    ]
    return found
