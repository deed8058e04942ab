"""Any sequence of commands beside a plain model; then with a driver that fails, and a session that is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
from cli.conftest import Done, Mempool
from cli.documents import document
from cli.machines import Ready, failure
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from session.hosts import files, process_end, served

from mempool_cli.driver import driver_source
from mempool_cli.driver.codes import Code
from mempool_cli.driver.guard import GuardedDriver
from mempool_cli.driver.port import LocationType, device_location
from mempool_cli.driver.sim.machine import Machine, Process
from mempool_cli.driver.sim.profile import parse_spec
from mempool_cli.model import Where
from mempool_cli.operations import LocalRunner
from mempool_cli.session.directory import Place

from . import model
from .model import MACHINE, Change, Refused, State

CALLS = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetAttribute",
    "cuDeviceCanAccessPeer",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetMemPool",
    "cuThreadExchangeStreamCaptureMode",
    *3
    * [
        "cuDeviceSetMemPool",
        "cuMemPoolCreate",
        "cuMemPoolDestroy",
        "cuMemPoolGetAttribute",
        "cuMemPoolSetAttribute",
        "cuMemPoolSetAccess",
        "cuMemPoolGetAccess",
    ],
]
FIRST = [("0", "--name", "a", "--to", "1"), ("host", "--name", "b")]
CODES = [*(code.name for code in Code if code), "12345"]

DURING = [["probe"], ["create", "0"], ["grant", "0", "--to", "1"], ["set-current", "0"], ["session", "status"]]

pool = st.sampled_from(model.POOLS)
devices = st.lists(st.sampled_from(model.WORDS), min_size=1, max_size=3)
flag = st.booleans()


def options(**given: bool) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, wanted in given.items() if wanted]


class Sequences(RuleBasedStateMachine):
    """What a user may type in any order. How an end is judged is for the tests to say."""

    def judge(self, command: str, *words: str, change: Change) -> None:
        raise NotImplementedError

    def automatic(self) -> str:
        """The name that the last `create` gave by itself."""
        raise NotImplementedError

    @rule(
        location=st.sampled_from(model.LOCATIONS),
        name=st.sampled_from(model.NAMES),
        to=st.just([]) | devices,
        threshold=st.sampled_from([[], ["--release-threshold", "1MiB"]]),
    )
    def create(self, location: str, name: str | None, to: list[str], threshold: list[str]) -> None:
        words = [location, *threshold, *(["--name", name] if name else []), *(["--to", *to] if to else [])]
        self.judge("create", *words, change=model.create(location, name, to, self.automatic))

    @rule(pool=pool, to=devices, only=flag, force=flag, dry_run=st.sampled_from([False, False, False, True]))
    def grant(self, pool: str, to: list[str], only: bool, force: bool, dry_run: bool) -> None:
        words = [pool, "--to", *to, *options(only=only, force=force, dry_run=dry_run)]
        self.judge("grant", *words, change=model.grant(pool, to, only=only, force=force, dry_run=dry_run))

    @rule(pool=pool, unwanted=devices, dry_run=st.sampled_from([False, False, False, True]))
    def revoke(self, pool: str, unwanted: list[str], dry_run: bool) -> None:
        words = [pool, "--from", *unwanted, *options(dry_run=dry_run)]
        self.judge("revoke", *words, change=model.revoke(pool, unwanted, dry_run=dry_run))

    @rule(pool=pool)
    def set_current(self, pool: str) -> None:
        self.judge("set-current", pool, change=model.set_current(pool))

    @rule(pools=st.lists(pool, min_size=1, max_size=2), no_cleanup=flag)
    def destroy(self, pools: list[str], no_cleanup: bool) -> None:
        self.judge("destroy", *pools, *options(no_cleanup=no_cleanup), change=model.destroy(pools))

    @rule(pools=st.lists(pool, max_size=2))
    def probe(self, pools: list[str]) -> None:
        self.judge("probe", *pools, change=model.look(pools))


class Host:
    """A session in a thread of this process, whose simulated driver a test looks into."""

    def __init__(self, mempool: Mempool, spec: str) -> None:
        self._mempool = mempool
        self._spec = spec
        self.program: Process = Machine(parse_spec(spec)).process()
        where = Where(kind="session", name="default", pid=os.getpid())
        self.runner = LocalRunner(Ready(GuardedDriver(self.program), spec), lambda: where)

    def run(self, *words: str) -> Done:
        return self._mempool("--sim", self._spec, "--format", "json", *words)

    @contextmanager
    def faultless(self) -> Iterator[None]:
        """No scripted failure is met, or counted, in here."""
        machine = self.program.machine
        failing, calls = machine.profile, machine._calls
        machine.profile, machine._calls = msgspec.structs.replace(failing, failures=()), []
        try:
            yield
        finally:
            machine.profile, machine._calls = failing, calls

    def truth(self) -> State:
        """What the machine has, whatever anybody says of it."""
        created = self.runner._pools._created
        handles = {name: pool.handle for name, pool in created.items()}
        alive = {handle for handle, pool in self.program._pools.items() if not pool.is_default}
        assert alive == set(handles.values()), "a pool is lost, or one is named that is gone"
        names = {handle: name for name, handle in handles.items()}
        fresh = State()
        handles |= {f"default:{device}": handle for device, handle in self.program._default.items()}
        return State(
            place={**fresh.place, **{name: self._place(pool.handle) for name, pool in created.items()}},
            access={**fresh.access, **{name: self._accessors(handle) for name, handle in handles.items()}},
            current=fresh.current
            | {device: names[handle] for device, handle in self.program._current.items() if handle in names},
        )

    def _place(self, handle: int) -> str:
        found = self.program._pools[handle]
        return str(found.owner) if found.owner is not None else self._host_place(handle)

    def _host_place(self, handle: int) -> str:
        location = self.program._pools[handle].properties.location
        return "host" if location.type == LocationType.HOST else f"numa:{location.id}"

    def _accessors(self, handle: int) -> frozenset[int]:
        """The devices other than the owner that have access, which itself always has."""
        found = self.program._pools[handle]
        able = {device for device in model.DEVICES if found.get_access(device_location(device), len(model.DEVICES))[1]}
        assert found.owner is None or found.owner in able
        return frozenset(able - {found.owner})


@contextmanager
def hosted(mempool: Mempool, place: Place, spec: str) -> Iterator[Host]:
    """A session in a thread on this machine."""
    host = Host(mempool, spec)
    with served(place.socket, host.runner, source=driver_source(spec)):
        yield host
    place.socket.unlink(missing_ok=True)


def expected(change: Change, before: State) -> tuple[State, str | None]:
    """The state after a command whose driver does as it should, and the code that the command ends with."""
    try:
        return change(before), None
    except Refused as refused:
        return before, refused.code


class OnHost(Sequences):
    """Sequences on a new session in a thread."""

    def __init__(self, mempool: Mempool, place: Place, directory: Path) -> None:
        super().__init__()
        self._mempool, self._place = mempool, place
        self._file = directory / "machine.toml"
        self._stack = ExitStack()
        self.names: set[str] = set()
        self.last: dict[str, Any] = {}

    def begin(self, *parts: str, fault: str = "") -> None:
        self._file.write_text("\n".join([MACHINE, *parts]))
        self.host = self._stack.enter_context(hosted(self._mempool, self._place, f"{self._file}{fault}"))
        with self.host.faultless():
            for words in FIRST:
                assert self.host.run("create", *words).status == 0
        self.state = State().with_pool("a", "0", {1}).with_pool("b", "host", set())
        self.names = set(self.state.access)

    def teardown(self) -> None:
        self._stack.close()

    def automatic(self) -> str:
        """The name that the last answer has, which was never given before."""
        name: str = self.last["data"]["pool"]["name"]
        assert model.is_automatic(name)
        assert name not in self.names
        return name


class Faultless(OnHost):
    """A driver that does as it should, but that recycled handles inherit: each answer is as the model has it."""

    @initialize()
    def start(self) -> None:
        self.begin(fault=",fault=recycled-handle")

    def judge(self, command: str, *words: str, change: Change) -> None:
        done = self.host.run(command, *words)
        self.last = document(done)
        after, code = expected(change, self.state)
        assert (self.last["error"] or {}).get("code") == code
        if command == "probe" and not code:
            assert model.shown(self.last) == model.matrix(after, words)
        self.names |= set(after.access)
        self.state = after

    @invariant()
    def the_matrix_shows_it(self) -> None:
        """And `list`, and the machine has it."""
        assert model.shown(document(self.host.run("probe"))) == model.matrix(self.state)
        assert self.host.truth() == self.state


class Failing(OnHost):
    """A driver that refuses calls as it likes: what is said is so, and what was refused has changed nothing."""

    @initialize(
        failures=st.lists(
            st.tuples(
                st.sampled_from(CALLS),
                st.sampled_from(CODES),
                st.integers(0, 60),
                st.integers(0, 3),
                st.none() | st.integers(0, 3),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def start(self, failures: list[tuple[str, str, int, int, int | None]]) -> None:
        def part(call: str, code: str, after: int, times: int, device: int | None) -> str:
            where = {} if device is None else {"device": device}
            return failure(call, code, after=after, times=times, **where).replace('"12345"', "12345")

        self.begin(*(part(*each) for each in failures))

    def judge(self, command: str, *words: str, change: Change) -> None:
        done = self.host.run(command, *words)
        self.last = document(done)
        now = self.host.truth()
        assert done.status in (0, 2, 3, 4)
        if command in ("create", "destroy"):
            self._judge_pools(now, command, change)
        else:
            after, code = expected(change, self.state)
            wanted = [after] if done.status == 0 else [self.state] if self._nothing_was_done() else [self.state, after]
            assert now in wanted
            assert done.status or code is None
        self._check_cells(now)
        self.state = now
        self.names |= set(now.access)

    def _nothing_was_done(self) -> bool:
        error = self.last["error"]
        changing = ("cuMemPoolSetAccess", "cuDeviceSetMemPool")
        return error["code"] not in ("driver-refused", "unreadable-cells") or (
            error["driver"] is not None and error["driver"]["call"] in changing
        )

    def _judge_pools(self, now: State, command: str, change: Change) -> None:
        """All as it should be; or each pool is one of before, or the new one, and has no access that nobody gave."""
        if self.last["exit"] == 0:
            assert now == expected(change, self.state)[0]
            return
        new, gone = now.access.keys() - self.state.access.keys(), self.state.access.keys() - now.access.keys()
        error = self.last["error"]
        if command == "create":
            assert not gone
            assert bool(new) == ("cannot be destroyed either and stays" in error["message"])
        else:
            assert not new
            told = self.last["data"]["destroyed"] if self.last["data"] else []
            assert gone == {each["pool"]["name"] for each in told}
        for pool in self.state.access.keys() & now.access.keys():
            assert now.access[pool] <= self.state.access[pool]
        assert now.current == model.without(self.state, list(gone)).current

    def _check_cells(self, now: State) -> None:
        """A cell that an answer has is as the machine has it."""
        data = self.last["data"] or {}
        rows = data.get("rows", [data] if "cells" in data and not data.get("dry_run") else [])
        whole = model.matrix(now)
        for row in rows:
            for cell in row["cells"]:
                if cell["access"] is not None:
                    assert cell["access"] == whole[row["pool"]["name"]][str(cell["device"])]

    @invariant()
    def no_state_is_hidden(self) -> None:
        """As soon as the driver answers again, the matrix has everything."""
        with self.host.faultless():
            assert model.shown(document(self.host.run("probe"))) == model.matrix(self.state)


class Killed(Sequences):
    """A session of its own process, which is killed between commands or in the midst of one."""

    def __init__(self, mempool: Mempool, runtime: Path, directory: Path) -> None:
        super().__init__()
        self._spec = str(directory / "machine.toml")
        (directory / "machine.toml").write_text(MACHINE)
        self._mempool = mempool
        self._runtime = runtime
        self.last: dict[str, Any] = {}
        self._begin()

    def run(self, *words: str) -> dict[str, Any]:
        return document(self._mempool("--sim", self._spec, "--format", "json", *words))

    def _begin(self) -> None:
        self.pid: int = self.run("session", "start")["data"]["session"]["pid"]
        self.state = State()

    def automatic(self) -> str:
        name: str = self.last["data"]["pool"]["name"]
        return name

    def judge(self, command: str, *words: str, change: Change) -> None:
        self.last = self.run(command, *words)
        self.state, code = expected(change, self.state)
        assert (self.last["error"] or {}).get("code") == code
        assert model.shown(self.run("probe")) == model.matrix(self.state)

    @initialize(seconds=st.sampled_from([0.0, 0.0003, 0.001, 0.002, 0.004]), words=st.sampled_from(DURING))
    def end(self, seconds: float, words: list[str]) -> None:
        """How the session is killed at the end: so long after this command has begun."""
        self._end = seconds, words

    def teardown(self) -> None:
        """Its death is told once, by the command that it was in or by the next, and nothing is left of it."""
        seconds, words = self._end
        with process_end(self.pid) as wait:
            timer = threading.Timer(seconds, os.kill, (self.pid, signal.SIGKILL))
            timer.start()
            codes = [(self.run(*words)["error"] or {}).get("code")]
            timer.join()
            wait()
        codes += [self.run("session", "status")["error"]["code"] for _ in range(2)]
        assert codes.count("session-died") == 1
        assert codes[-1] == "no-session"
        assert set(codes) <= {None, "session-died", "no-session", "outcome-unknown"}
        assert files(self._runtime) == []
        self._begin()
        assert model.shown(self.run("probe")) == model.matrix(self.state)
        self.run("session", "stop")


def try_many(machine: Callable[[], RuleBasedStateMachine], *, examples: int, steps: int) -> None:
    # It takes whatever makes one; only its annotation says that this is a class.
    made = cast("type[RuleBasedStateMachine]", machine)
    run_state_machine_as_test(made, settings=settings(max_examples=examples, stateful_step_count=steps))


def test_faultless(mempool: Mempool, runtime: Path, tmp_path: Path, much: int) -> None:
    place = Place(runtime, True, "default")
    try_many(lambda: Faultless(mempool, place, tmp_path), examples=8 * much, steps=25)


def test_a_driver_that_fails(mempool: Mempool, runtime: Path, tmp_path: Path, much: int) -> None:
    place = Place(runtime, True, "default")
    try_many(lambda: Failing(mempool, place, tmp_path), examples=12 * much, steps=15)


def test_a_session_that_is_killed(mempool: Mempool, runtime: Path, tmp_path: Path, much: int) -> None:
    try_many(lambda: Killed(mempool, runtime, tmp_path), examples=3 * much, steps=8)
