"""Drivers that refuse, or say yes and do nothing: what was applied, what was not, and exit status 4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from mempool_cli.driver.port import AccessEntry, AccessFlags, PoolProperties
from mempool_cli.driver.sim.machine import Process
from mempool_cli.driver.trace import TracedDriver
from mempool_cli.model import AccessChange, PoolCreated
from mempool_cli.requests import Create, Destroy, Grant, Revoke, SetCurrent

from .conftest import Mempool
from .documents import document
from .machines import (
    AFFECTED,
    FOUR,
    FRESH,
    HELD,
    SEEN,
    ask,
    calls,
    failure,
    label,
    machine,
    process,
    runner,
    show,
)
from data_path import own_stream

REFUSED = "  driver: cuMemPoolSetAccess = CUDA_ERROR_UNKNOWN (999)\n"


# --- grants and revokes ---


def test_a_refused_grant_says_how_much_was_applied(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess", after=1, times=1))
    mempool("--sim", spec, "grant", "0", "--to", "1")
    done = mempool("--sim", spec, "grant", "0", "--to", "2", "--only", "--trace")
    assert (done.status, done.out) == (
        4,
        label(spec) + "pool default:0: nothing changed (1 cuMemPoolSetAccess call)\n"
        "access now: owner 0; RW 1; none 2-3\n" + SEEN,
    )
    assert done.err.endswith(
        "error: pool default:0: the driver refused the change, 0 of 2 applied [driver-refused]\n" + REFUSED
    )
    lines = done.err.splitlines()
    refused = next(number for number, line in enumerate(lines) if line.startswith("cuMemPoolSetAccess"))
    read_back = [line for line in lines[refused:] if line.startswith("cuMemPoolGetAccess")]
    assert len(read_back) == 5
    assert mempool("--sim", spec, "grant", "0", "--to", "2", "--only").status == 0


def test_a_refused_revoke_says_how_much_was_applied(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess", "CUDA_ERROR_NOT_SUPPORTED", after=1))
    mempool("--sim", spec, "grant", "0", "--to", "all")
    assert mempool("--sim", spec, "revoke", "0", "--from", "all") == (
        4,
        label(spec) + "pool default:0: nothing changed (1 cuMemPoolSetAccess call)\n"
        "access now: owner 0; RW 1-3\n" + SEEN,
        "error: pool default:0: the driver refused the change, 0 of 3 applied [driver-refused]\n"
        "  driver: cuMemPoolSetAccess = CUDA_ERROR_NOT_SUPPORTED (801)\n"
        "  try: this driver does not support the change on this kind of pool\n",
    )


def test_a_capture_in_the_program_is_said_to_be_lost(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"))
    done = mempool("--sim", spec, "--no-session", "grant", "0", "--to", "1")
    assert (done.status, done.err.splitlines()[-1]) == (
        4,
        "  try: a thread of this process is capturing a stream; end the capture first. The capture is now invalid",
    )


def test_the_entries_that_explain_a_refusal_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A pool that was allocated from takes no device without P2P: the driver says "invalid device"."""
    program = process("pcie-4")
    asked = runner(program)
    ask(asked, Create(location="0", name="a"))
    ask(asked, SetCurrent(pool="a"))
    program.mem_alloc_from_pool_async(1024, program.device_get_mem_pool(0), own_stream(program))
    assert show(ask(asked, Grant(pool="a", to=("all",), force=True))) == 4
    assert capsys.readouterr() == (
        label("4") + "pool a: nothing changed (1 cuMemPoolSetAccess call)\n"
        "access now: owner 0; none 1; not capable 2-3\n" + FRESH,
        "error: pool a: the driver refused the change, 0 of 3 applied: devices 2-3 cannot reach device 0"
        " [driver-refused]\n"
        "  driver: cuMemPoolSetAccess = CUDA_ERROR_INVALID_DEVICE (101)\n",
    )
    assert show(ask(asked, Grant(pool="a", to=("peers",)))) == 0


class Liar(Process):
    """A process whose driver accepts changes of access and applies those of the devices in `obeys`."""

    obeys: Sequence[int] = ()

    def mem_pool_set_access(self, pool: int, entries: Sequence[AccessEntry]) -> None:
        done = [entry for entry in entries if entry.location.id in self.obeys]
        if done:
            super().mem_pool_set_access(pool, done)


def liar(*obeys: int) -> Liar:
    program = Liar(process().machine, None)
    program.obeys = obeys
    return program


def test_a_driver_that_accepts_and_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(ask(runner(liar()), Grant(pool="0", to=("1", "2")))) == 4
    assert capsys.readouterr() == (
        label("4") + "pool default:0: nothing changed (1 cuMemPoolSetAccess call)\n"
        "access now: owner 0; none 1-3\n" + FRESH,
        "error: pool default:0: the driver accepted the change, but not all reads back as asked: devices 1-2"
        " [not-applied]\n"
        "  try: this is a driver fault; report it with the output of --trace\n",
    )


def test_a_driver_that_does_a_part() -> None:
    program = liar(1, 2)
    asked = runner(program)
    answer = ask(asked, Grant(pool="0", to=("1", "3")))
    assert isinstance(answer.result, AccessChange)
    assert (answer.result.granted, answer.exit) == ((1,), 4)
    assert answer.problem is not None
    assert answer.problem.message.endswith("not all reads back as asked: device 3")
    program.obeys = ()
    answer = ask(asked, Revoke(pool="0", devices=("all",)))
    assert isinstance(answer.result, AccessChange)
    assert (answer.result.revoked, answer.exit) == ((), 4)
    assert answer.problem is not None
    assert (answer.problem.code, answer.problem.message[-8:]) == ("not-applied", "device 1")


def test_only_does_not_guess_at_a_cell_that_cannot_be_read(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolGetAccess", device=3))
    done = mempool("--sim", spec, "--no-session", "grant", "0", "--to", "1", "--only", "--trace")
    assert (done.status, done.out, calls(done.err, "cuMemPoolSetAccess")) == (4, "", [])
    assert done.err.splitlines()[-2:] == [
        "error: pool default:0: the access of device 3 cannot be read, so --only cannot set it [unreadable-cells]",
        "  driver: cuMemPoolGetAccess = CUDA_ERROR_UNKNOWN (999)",
    ]
    assert mempool("--sim", spec, "--no-session", "grant", "0", "--to", "1").status == 0


def test_a_revoke_includes_what_cannot_be_read(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolGetAccess", device=3, times=1))
    done = mempool("--sim", spec, "--no-session", "revoke", "0", "--from", "all", "--trace")
    assert (done.status, calls(done.err, "cuMemPoolSetAccess")) == (
        0,
        ["cuMemPoolSetAccess(0x550000000000, [device 3 NONE]) = CUDA_SUCCESS"],
    )


# --- create ---


@pytest.mark.parametrize(
    ("refused", "options", "message", "driver"),
    [
        (failure("cuMemPoolSetAccess"), ("--to", "1", "2"),
         "the driver refused the change, 0 of 2 applied", "cuMemPoolSetAccess"),
        (failure("cuMemPoolSetAttribute"), ("--release-threshold", "1MiB"),
         "the driver refused cuMemPoolSetAttribute", "cuMemPoolSetAttribute"),
        (failure("cuMemPoolGetAccess", device=2), (), "1 of 5 cells could not be read", "cuMemPoolGetAccess"),
        (failure("cuMemPoolGetAccess", device=2), ("--to", "2"),
         "1 of 5 cells could not be read", "cuMemPoolGetAccess"),
    ],
    ids=["grant", "threshold", "read-back", "read-back-of-a-grant"],
)  # fmt: skip
def test_a_creation_that_gets_half_way_leaves_no_pool(
    mempool: Mempool, tmp_path: Path, refused: str, options: tuple[str, ...], message: str, driver: str
) -> None:
    spec = machine(tmp_path, FOUR, refused)
    mempool("--sim", spec, "session", "start")
    done = mempool("--sim", spec, "create", "0", "--name", "half", *options)
    code = "unreadable-cells" if "read" in message else "driver-refused"
    assert done == (
        4,
        "",
        label(spec) + f"error: pool half: {message}; the new pool was destroyed again [{code}]\n"
        f"  driver: {driver} = CUDA_ERROR_UNKNOWN (999)\n",
    )
    assert "created" not in mempool("--sim", spec, "list").out


def test_a_session_that_was_started_for_a_failure_ends(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess"))
    assert mempool("--sim", spec, "create", "0", "--to", "1").status == 4
    assert mempool("--sim", spec, "grant", "0", "--to", "1").status == 4
    assert mempool("--sim", spec, "session", "list").out == "no session runs\n"


def test_a_half_made_pool_that_cannot_be_destroyed_is_not_forgotten(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess", times=1), failure("cuMemPoolDestroy", times=1))
    mempool("--sim", spec, "session", "start")
    assert mempool("--sim", spec, "create", "0", "--name", "half", "--to", "1").err == (
        label(spec) + "error: pool half: the driver refused the change, 0 of 1 applied;"
        " the new pool cannot be destroyed either and stays [driver-refused]\n" + REFUSED
    )
    assert "half       created          0 " in mempool("--sim", spec, "list").out
    assert mempool("--sim", spec, "destroy", "half").out == label(spec) + "destroyed pool half\n" + AFFECTED


def test_inherited_access_that_will_not_clear_is_no_success(tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess", after=5)) + ",fault=recycled-handle"
    lines: list[str] = []
    asked = runner(TracedDriver(process(spec), lines.append))
    for number in range(1, 6):
        ask(asked, Create(location="0", to=("1",)))
        ask(asked, Destroy(pools=(f"pool-{number}",), cleanup=False))
    answer = ask(asked, Create(location="0"))
    assert (answer.exit, answer.result, asked.pool_names()) == (4, None, ())
    assert answer.problem is not None
    assert answer.problem.message == (
        "pool pool-6: the driver refused the change, 0 of 1 applied; the new pool was destroyed again"
    )


# --- destroy ---


def test_clearing_that_is_refused_as_one_call_goes_one_by_one(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolSetAccess", after=1, times=1))
    mempool("--sim", spec, "create", "0", "--to", "all")
    done = mempool("--sim", spec, "destroy", "pool-1", "--trace")
    assert (done.status, done.out) == (
        0,
        label(spec) + "destroyed pool pool-1 (access of devices 1-3 cleared first)\n" + AFFECTED,
    )
    assert [call.partition(", ")[2] for call in calls(done.err, "cuMemPoolSetAccess")] == [
        "[device 1 NONE, device 2 NONE, device 3 NONE]) = CUDA_ERROR_UNKNOWN (999)",
        "[device 1 NONE]) = CUDA_SUCCESS",
        "[device 2 NONE]) = CUDA_SUCCESS",
        "[device 3 NONE]) = CUDA_SUCCESS",
    ]


def test_what_cannot_be_read_is_cleared_too(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolGetAccess", device=3, after=2, times=1))
    mempool("--sim", spec, "create", "0", "--to", "1")
    done = mempool("--sim", spec, "destroy", "pool-1", "--trace")
    assert (done.status, done.out) == (
        0,
        label(spec) + "destroyed pool pool-1 (access of device 1 cleared first)\n" + AFFECTED,
    )
    assert [call.partition(", ")[2] for call in calls(done.err, "cuMemPoolSetAccess")] == [
        "[device 1 NONE, device 3 NONE]) = CUDA_SUCCESS"
    ]


def test_what_would_not_clear_is_reported(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(
        tmp_path,
        FOUR,
        failure("cuMemPoolSetAccess", device=2, after=1),
        failure("cuMemPoolSetAccess", after=1, times=1),
    )
    mempool("--sim", spec, "create", "0", "--name", "a", "--to", "1", "2")
    assert mempool("--sim", spec, "destroy", "a") == (
        4,
        label(spec)
        + "destroyed pool a (access of device 1 cleared first)\n  access would not clear: device 2\n"
        + AFFECTED,
        "error: destroyed, but access would not clear first: a (device 2) [not-cleared]\n"
        "  try: a pool created later may get the same handle and inherit this access;"
        f" `mempool --sim {spec} create` reports it\n",
    )
    assert "\na " not in mempool("--sim", spec, "list").out


def test_a_pool_that_cannot_be_destroyed_is_named_and_so_are_those_that_were(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolDestroy", after=1, times=1))
    for name in ("a", "b", "c"):
        mempool("--sim", spec, "create", "0", "--name", name, "--to", "1")
    assert mempool("--sim", spec, "destroy", "a", "b", "c") == (
        4,
        label(spec) + "destroyed pool a (access of device 1 cleared first)\n" + AFFECTED,
        "error: pool b was not destroyed (1 of 3 were) [driver-refused]\n"
        "  driver: cuMemPoolDestroy = CUDA_ERROR_UNKNOWN (999)\n"
        "  try: device 1 lost access to it all the same\n",
    )
    assert mempool("--sim", spec, "probe", "b", "c").out.splitlines()[2:4] == [
        "b     created  0   owner 0; none 1-3",
        "c     created  0   owner 0; RW 1; none 2-3",
    ]
    assert mempool("--sim", spec, "destroy", "b", "c", "--no-cleanup").status == 0


# --- other calls ---


def test_a_refused_current_pool(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuDeviceSetMemPool", after=1))
    mempool("--sim", spec, "create", "0", "--name", "a")
    assert mempool("--sim", spec, "set-current", "a").out == (
        label(spec) + "device 0 now allocates from pool a, before from default:0\n" + HELD
    )
    assert mempool("--sim", spec, "set-current", "0") == (
        4,
        "",
        label(spec) + "error: the driver refused cuDeviceSetMemPool [driver-refused]\n"
        "  driver: cuDeviceSetMemPool = CUDA_ERROR_UNKNOWN (999)\n"
        "  try: run it again with --trace to see the calls before it\n",
    )
    assert "a     current,created  0 " in mempool("--sim", spec, "probe", "current:0").out


def test_an_attribute_that_is_refused_is_not_known(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuMemPoolGetAttribute", device=1))
    done = mempool("--sim", spec, "list")
    assert done.out.splitlines()[1:4] == [
        "pool       kind             on  used  reserved  threshold  max size",
        "default:0  default,current  0   0 B   0 B       0 B        -",
        "default:1  default,current  1   -     -         -          -",
    ]
    words = "  driver: cuMemPoolGetAttribute = CUDA_ERROR_UNKNOWN (999)\n"
    unread = "error: the attributes of 1 of 4 pools could not be read [unreadable-attributes]\n"
    assert (done.status, done.err) == (4, unread + words)
    done = mempool("--sim", spec, "show", "1")
    assert "release_threshold                  cuMemPoolGetAttribute = CUDA_ERROR_UNKNOWN (999)\n" in done.out
    unread = "error: 8 of 8 attributes could not be read [unreadable-attributes]\n"
    assert (done.status, done.err) == (4, unread + words)


def test_a_default_pool_that_is_refused_hides_no_other(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuDeviceGetDefaultMemPool", "CUDA_ERROR_NOT_SUPPORTED", device=2))
    done = mempool("--sim", spec, "probe", "--matrix")
    assert done.out.splitlines()[1:6] == [
        "pool       kind             on  host  0    1    2    3",
        "default:0  default,current  0   -     own  -    -    -",
        "default:1  default,current  1   -     -    own  -    -",
        "default:2  default          2   err   err  err  err  err",
        "default:3  default,current  3   -     -    -    -    own",
    ]
    assert (done.status, done.err.splitlines()[0]) == (
        4,
        "error: 5 of 20 cells could not be read [unreadable-cells]",
    )
    assert mempool("--sim", spec, "list").status == 4
    done = mempool("--sim", spec, "grant", "2", "--to", "1")
    assert "error: pool 2 cannot be reached: the driver refused cuDeviceGetDefaultMemPool [driver-refused]" in done.err
    assert mempool("--sim", spec, "grant", "0", "--to", "2").status == 0


def test_a_pair_that_is_not_answered_hides_no_other(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuDeviceCanAccessPeer", device=2))
    done = mempool("--sim", spec, "devices")
    assert [line.rpartition("  ")[2] for line in done.out.splitlines()[2:6]] == [
        "1, 3; not known: 2",
        "0, 3; not known: 2",
        "-; not known: 0-1, 3",
        "0-1; not known: 2",
    ]
    assert (done.status, done.err) == (4, "error: the driver did not answer for 6 of 12 pairs [unreadable-cells]\n")


def test_a_capability_that_is_not_known_is_no_grant(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, failure("cuDeviceCanAccessPeer", device=2))
    done = mempool("--sim", spec, "grant", "0", "--to", "1", "2")
    assert (done.status, done.err) == (
        4,
        label(spec) + "error: pool default:0: the driver does not say whether device 2 can reach device 0"
        " [unreadable-cells]\n  driver: cuDeviceCanAccessPeer = CUDA_ERROR_UNKNOWN (999)\n",
    )
    assert mempool("--sim", spec, "session", "start").status == 0
    forced = mempool("--sim", spec, "--format", "json", "grant", "0", "--to", "2", "--force")
    assert document(forced)["data"]["granted"] == [2]
    assert "RW~" in mempool("--sim", spec, "probe", "0", "--matrix").out
    assert "RW (capability not known) 2" in mempool("--sim", spec, "probe", "0").out
    cell = document(mempool("--sim", spec, "--format", "json", "probe", "0"))["data"]["rows"][0]["cells"][2]
    assert (cell["access"], cell["capable"], cell["error"]["driver"]["call"]) == ("rw", None, "cuDeviceCanAccessPeer")


def test_a_refused_call_is_not_credited_with_what_was_there(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(
        tmp_path,
        FOUR,
        failure("cuMemPoolSetAccess", after=1),
        failure("cuMemPoolGetAccess", device=2, after=2, times=1),
    )
    assert mempool("--sim", spec, "grant", "0", "--to", "2").status == 0
    done = mempool("--sim", spec, "grant", "0", "--to", "2")
    assert (done.status, done.err.splitlines()[0]) == (
        4,
        "error: pool default:0: the driver refused the change, 0 of 1 applied [driver-refused]",
    )
    assert "nothing changed" in done.out


@pytest.mark.parametrize("command", [["devices"], ["list"], ["probe"], ["show", "0"], ["grant", "0", "--to", "1"]])
def test_a_question_about_devices_that_is_refused(mempool: Mempool, tmp_path: Path, command: list[str]) -> None:
    spec = machine(tmp_path, FOUR, failure("cuDeviceGetUuid", "CUDA_ERROR_ECC_UNCORRECTABLE", device=2))
    assert mempool("--sim", spec, "--no-session", *command) == (
        4,
        "",
        label(spec) + "error: the driver refused cuDeviceGetUuid [driver-refused]\n"
        "  driver: cuDeviceGetUuid = CUDA_ERROR_ECC_UNCORRECTABLE (214)\n"
        "  try: run it again with --trace to see the calls before it\n",
    )


@pytest.mark.parametrize(
    ("code", "status", "message", "hint"),
    [
        ("CUDA_ERROR_NO_DEVICE", 3, "no usable CUDA device [no-device]", "has no device"),
        ("CUDA_ERROR_SYSTEM_NOT_READY", 3, "the CUDA driver does not start [no-driver]", "nvidia-fabricmanager"),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 3, "the CUDA driver does not start [no-driver]", "different versions"),
    ],
)
def test_a_driver_that_does_not_start(
    mempool: Mempool, tmp_path: Path, code: str, status: int, message: str, hint: str
) -> None:
    spec = machine(tmp_path, FOUR, failure("cuInit", code))
    for command in (["probe"], ["create", "0"], ["session", "start"]):
        done = mempool("--sim", spec, *command)
        assert (done.status, done.out) == (status, "")
        assert f"error: {message}\n  driver: cuInit = {code} (" in done.err
        assert hint in done.err.splitlines()[-1]


class Tainted(Process):
    """A process in which cuMemPoolCreate gives out a pool whose access somebody set already."""

    def mem_pool_create(self, properties: PoolProperties) -> int:
        pool = super().mem_pool_create(properties)
        self.mem_pool_set_access(pool, [AccessEntry(properties.location._replace(id=3), AccessFlags.READWRITE)])
        return pool


def test_access_from_nowhere_is_cleared_on_any_new_pool() -> None:
    created = ask(runner(Tainted(process().machine, None)), Create(location="0", to=("1",))).result
    assert isinstance(created, PoolCreated)
    assert (created.inherited, created.granted, created.set_access_calls) == ((3,), (1,), 1)
    assert [cell.access for cell in created.cells] == ["rw", "rw", "none", "none"]
