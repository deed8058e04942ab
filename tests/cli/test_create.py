"""`mempool create`: a pool with exactly the access that was asked for, or no pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from mempool_cli.model import PoolCreated, PoolDestroyed, PoolsDestroyed
from mempool_cli.requests import Create, Destroy, Grant

from .conftest import Mempool
from .machines import ENDED, HELD, STARTED, ask, calls, label, machine, process, runner, show

FAULTY = "4,fault=recycled-handle"


def test_a_pool_lives_in_the_session(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "create", "0") == (
        0,
        label("4") + "created pool pool-1 on device 0 (max size: driver default, release threshold: 0 B)\n"
        "access now: owner 0; none 1-3\n" + HELD,
        STARTED,
    )
    assert mempool("--sim", "4", "list").out.splitlines()[1:7] == [
        "pool       kind             on  used  reserved  threshold  max size",
        "default:0  default,current  0   0 B   0 B       0 B        -",
        "default:1  default,current  1   0 B   0 B       0 B        -",
        "default:2  default,current  2   0 B   0 B       0 B        -",
        "default:3  default,current  3   0 B   0 B       0 B        -",
        "pool-1     created          0   0 B   0 B       0 B        driver default",
    ]


def test_all_that_can_be_chosen(mempool: Mempool) -> None:
    done = mempool(
        *("--sim", "4", "create", "1", "--name", "train", "--max-size", "1GiB"),
        *("--release-threshold", "64MiB", "--to", "0", "3", "1", "--trace"),
    )
    assert done.out == (
        label("4") + "created pool train on device 1 (max size: 1 GiB, release threshold: 64 MiB)\n"
        "granted to devices 0, 3 (1 cuMemPoolSetAccess call)\n"
        "access now: owner 1; RW 0, 3; none 2\n" + HELD
    )
    assert calls(done.err, "cuMemPoolCreate") == [
        "cuMemPoolCreate(device 1, max_size 1073741824) = 0x550000000000",
    ]
    assert calls(done.err, "cuMemPoolSetAttribute") == [
        "cuMemPoolSetAttribute(0x550000000000, RELEASE_THRESHOLD, 67108864) = CUDA_SUCCESS"
    ]
    assert len(calls(done.err, "cuMemPoolSetAccess")) == 1
    assert "train      created          1   0 B   0 B       64 MiB     1 GiB\n" in mempool("--sim", "4", "list").out


@pytest.mark.parametrize(
    ("location", "place", "access"),
    [
        ("host", "host", "none 0-1"),
        ("numa:0", "numa:0", "none 0-1"),
        ("1", "device 1", "owner 1; none 0"),
        ("GPU-e606", "device 1", "owner 1; none 0"),
        ("00000000:03:00.0", "device 1", "owner 1; none 0"),
    ],
)
def test_places(mempool: Mempool, location: str, place: str, access: str) -> None:
    assert mempool("--sim", "2", "--no-session", "create", location) == (
        0,
        label("2") + f"created pool pool-1 on {place} (max size: driver default, release threshold: 0 B)\n"
        f"access now: {access}\n" + ENDED,
        "",
    )


def test_quiet_prints_the_name_alone(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "create", "0", "-q") == (0, "pool-1\n", STARTED + label("4"))
    assert mempool("--sim", "4", "create", "0", "--quiet") == (0, "pool-2\n", label("4"))


def test_automatic_names_are_never_given_twice(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "create", "0", "-q").out == "pool-1\n"
    mempool("--sim", "4", "create", "0", "--name", "pool-2")
    assert mempool("--sim", "4", "create", "0", "-q").out == "pool-3\n"
    mempool("--sim", "4", "destroy", "pool-3")
    assert mempool("--sim", "4", "create", "0", "-q").out == "pool-4\n"


def test_a_name_is_free_again_after_destroy(mempool: Mempool) -> None:
    mempool("--sim", "4", "create", "0", "--name", "a", "--to", "1")
    assert mempool("--sim", "4", "create", "1", "--name", "a") == (
        2,
        "",
        label("4") + "error: there is a pool 'a' already [name-taken]\n  try: `mempool --sim 4 list` shows it\n",
    )
    assert "a          created          0   owner 0; RW 1; none 2-3\n" in mempool("--sim", "4", "probe").out
    mempool("--sim", "4", "destroy", "a")
    assert mempool("--sim", "4", "create", "1", "--name", "a").status == 0


def test_a_device_that_cannot_is_refused_before_there_is_a_pool(mempool: Mempool) -> None:
    done = mempool("--sim", "pcie-4", "create", "0", "--to", "1", "2", "3", "--trace")
    assert (done.status, done.out, calls(done.err, "cuMemPoolCreate")) == (3, "", [])
    assert done.err.splitlines()[-2:] == [
        "error: devices 2-3 cannot reach device 0, so no access can be granted to a new pool;"
        " nothing was changed [not-peer-capable]",
        "  try: `--to peers` takes those that can, `mempool --sim pcie-4 devices` shows them; `grant --force` tries"
        " anyway, and then the next allocation may fail",
    ]
    assert mempool("--sim", "pcie-4", "session", "list").out == "no session runs\n"
    assert (
        "granted to device 1 (1 cuMem" in mempool("--sim", "pcie-4", "--no-session", "create", "0", "--to", "peers").out
    )


def test_a_host_pool_takes_the_cards_that_have_pools(mempool: Mempool) -> None:
    assert mempool("--sim", "mixed-4", "--no-session", "create", "host", "--to", "all") == (
        3,
        "",
        label("mixed-4") + "error: device 2 cannot use memory pools, so no access can be granted to a new pool;"
        " nothing was changed [no-pool-support]\n  try: `--to peers` takes those that can\n",
    )
    done = mempool("--sim", "mixed-4", "--no-session", "create", "host", "--to", "peers")
    assert "access now: RW 0-1, 3; no pool support 2\n" in done.out


@pytest.mark.parametrize(
    ("spec", "location", "status", "message", "hint"),
    [
        ("2", "9", 2, "there is no device 9: devices 0 to 1 are visible [unknown-device]", "`mempool --sim 2 devices`"),
        ("1", "1", 2, "there is no device 1: only device 0 is visible [unknown-device]", "`mempool --sim 1 devices`"),
        ("2", "-x", 2, "No such option '-x'. [usage]", "see `mempool create --help`"),
        ("2", "", 2, "'' is no place for a pool [usage]", "a device (0, GPU-8fc8, 0000:19:00.0), host, or numa:0"),
        ("2", "hots", 2, "'hots' is no place for a pool [usage]", "a device (0, GPU-8fc8, 0000:19:00.0), host, or"),
        ("2", "numa:x", 2, "'numa:x' is no NUMA node [usage]", "numa:0 is the first one"),
        ("2", "numa:", 2, "'numa:' is no NUMA node [usage]", "numa:0 is the first one"),
        ("2", "numa:7", 4, "the driver cannot create a pool on numa:7 [driver-refused]", "/sys/devices/system/node"),
        ("mixed-4", "2", 3, "device 2 (Tesla K40c) has no memory pool support [no-pool-support]", "old cards have"),
    ],
)
def test_places_that_are_none(mempool: Mempool, spec: str, location: str, status: int, message: str, hint: str) -> None:
    done = mempool("--sim", spec, "--no-session", "create", location)
    assert (done.status, done.out) == (status, "")
    error, *_, attempt = done.err.removeprefix(label(spec)).splitlines()
    assert error == f"error: {message}"
    assert attempt.removeprefix("  try: ").startswith(hint)


def test_options_eat_the_location(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "create", "--to", "1") == (
        2,
        "",
        "error: missing LOCATION: it comes before --to, which takes every word after it"
        " (mempool create LOCATION --to DEV...) [usage]\n"
        "  try: see `mempool create --help`\n",
    )


def test_out_of_address_space_counts_the_pools(mempool: Mempool, tmp_path: Path) -> None:
    """A pool reserves its largest size, whatever the card holds."""
    small = machine(tmp_path, "[[device]]", "memory = 1_073_741_824")
    for number in range(3):
        assert mempool("--sim", small, "create", "0", "--max-size", "20TiB").status == 0, number
    assert mempool("--sim", small, "create", "0", "--max-size", "20TiB") == (
        4,
        "",
        label(small) + "error: no room for another pool on device 0; pools alive here: 3 [out-of-memory]\n"
        "  driver: cuMemPoolCreate = CUDA_ERROR_OUT_OF_MEMORY (2)\n"
        "  try: every pool reserves address space for its maximum size: give a smaller --max-size\n",
    )
    assert mempool("--sim", small, "create", "0", "--max-size", "100GiB").status == 0
    mempool("--sim", small, "destroy", "pool-1")
    assert mempool("--sim", small, "create", "0", "--max-size", "19TiB").status == 0


# --- a driver whose recycled handles inherit access ---


def test_inherited_access_is_reported_and_cleared(mempool: Mempool) -> None:
    for number in range(1, 6):
        mempool("--sim", FAULTY, "create", "0", "--to", "1", "2")
        assert mempool("--sim", FAULTY, "destroy", f"pool-{number}", "--no-cleanup").out == (
            label(FAULTY) + f"destroyed pool pool-{number}\n"
            "  access left as it was: devices 1-2\n"
            "affects only session default (pid PID); no other process\n"
        )
    done = mempool("--sim", FAULTY, "create", "0", "--trace")
    assert (done.status, done.out) == (
        0,
        label(FAULTY) + "created pool pool-6 on device 0 (max size: driver default, release threshold: 0 B)\n"
        "cleared access that nobody asked for: devices 1-2\n"
        "access now: owner 0; none 1-3\n" + HELD,
    )
    assert done.err.splitlines()[-1] == (
        "warning: the new pool pool-6 came with access for devices 1-2, which nobody had granted"
        " (a recycled pool handle, nvbug 5698116); it was cleared [inherited-access]"
    )
    assert [call.partition(", ")[2] for call in calls(done.err, "cuMemPoolSetAccess")] == [
        "[device 1 NONE, device 2 NONE]) = CUDA_SUCCESS"
    ]


@pytest.mark.parametrize(
    ("to", "cleared", "granted", "access", "fate", "entries"),
    [
        (["1"], "cleared access that nobody asked for: device 2\n", "granted to device 1 (1 cuMemPoolSetAccess call)\n",
         "RW 1; none 2-3", "that of device 2 was cleared, the rest was asked for", ["[device 2 NONE]"]),
        (["1", "2"], "", "granted to devices 1-2 (no cuMemPoolSetAccess call)\n",
         "RW 1-2; none 3", "it stays, as asked for", []),
        (["3"], "cleared access that nobody asked for: devices 1-2\n",
         "granted to device 3 (1 cuMemPoolSetAccess call)\n",
         "RW 3; none 1-2", "it was cleared", ["[device 3 READWRITE, device 1 NONE, device 2 NONE]"]),
    ],
)  # fmt: skip
def test_what_was_asked_for_is_not_cleared(
    capsys: pytest.CaptureFixture[str],
    to: list[str],
    cleared: str,
    granted: str,
    access: str,
    fate: str,
    entries: list[str],
) -> None:
    asked = runner(process(FAULTY))
    for number in range(1, 6):
        ask(asked, Create(location="0", to=("1", "2")))
        ask(asked, Destroy(pools=(f"pool-{number}",), cleanup=False))
    trace: list[str] = []
    answer = ask(asked, Create(location="0", to=tuple(to)), trace=trace)
    assert [
        call.partition(", ")[2].partition(")")[0] for call in calls("\n".join(trace), "cuMemPoolSetAccess")
    ] == entries
    assert show(answer) == 0
    out, err = capsys.readouterr()
    assert out.startswith(
        label("4") + "created pool pool-6 on device 0 (max size: driver default, release threshold: 0 B)\n"
        f"{cleared}{granted}access now: owner 0; {access}\n"
    )
    assert (
        f"came with access for devices 1-2, which nobody had granted (a recycled pool handle, nvbug 5698116); {fate}"
        in err
    )


def test_nothing_is_inherited_when_pools_are_cleaned_up(mempool: Mempool) -> None:
    asked = runner(process(FAULTY))
    handles = set()
    for number in range(1, 41):
        trace: list[str] = []
        created = ask(asked, Create(location="0", to=("1", "2", "3")), trace=trace).result
        assert isinstance(created, PoolCreated)
        assert (created.inherited, created.warnings, created.granted) == ((), (), (1, 2, 3))
        handles.add(calls("\n".join(trace), "cuMemPoolCreate")[0].rpartition(" = ")[2])
        ask(asked, Grant(pool=f"pool-{number}", to=("1",), only=True))
        destroyed = ask(asked, Destroy(pools=(f"pool-{number}",))).result
        assert isinstance(destroyed, PoolsDestroyed)
        assert destroyed.destroyed == (PoolDestroyed(pool=created.pool, cleared=(1,)),)
    assert len(handles) < 10  # handles did come back
