"""The agent at work: a session's server in a thread of the program, over the program's own CUDA."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mempool_cli.agent import named
from mempool_cli.agent.descriptors import out_of_the_way
from mempool_cli.agent.door import Door
from mempool_cli.agent.errands import Errands
from mempool_cli.agent.readiness import check_initialised
from mempool_cli.driver import driver_source
from mempool_cli.errors import Problem
from mempool_cli.model import Answer
from mempool_cli.operations import LocalRunner
from mempool_cli.requests import AnyRequest, Destroy, OnEvent
from mempool_cli.session import journal
from mempool_cli.session.directory import Place
from mempool_cli.session.environment import Environment
from mempool_cli.session.lease import Lease
from mempool_cli.session.protocol import HostState
from mempool_cli.session.server import Server, listener_of


def serve(door: Door) -> None:
    """Serves the clients of this program, and runs its orders, until it ends or the agent is detached."""
    lease = Lease("program", door.name, 0)
    lease.started = door.started
    runner = ProgramRunner(door, lease)
    errands = Errands(door, runner)
    with door.turn:
        server = _server(door, runner, lease, errands)
    try:
        server.serve()
        with door.turn:
            errands.finish()
    finally:
        with door.turn:
            door.part(server)


def _server(door: Door, runner: ProgramRunner, lease: Lease, errands: Errands) -> Server:
    listener, wake = door.hand_over()
    files = _Files(door, Place(Path(door.directory), False, door.name))
    server = Server(
        listener_of(listener),
        runner,
        lease,
        files,
        driver=driver_source(None).digest,
        sim=None,
        here=runner.environment,
        tick=errands.tick,
        turn=door.turn,
        wake=wake,
        place=out_of_the_way,
    )
    door.server = server
    files.changed(server.state())
    if door.leaving:
        server.request_stop()
    return server


class ProgramRunner:
    """Requests about this process's pools, answered once the program has initialised CUDA."""

    def __init__(self, door: Door, lease: Lease) -> None:
        self._door = door
        self._local = LocalRunner(
            driver_source(None), lease.where, named=lambda: self._named, initialised=check_initialised
        )
        self._environment: Environment | None = None
        self._named: Mapping[str, named.HeldPool] = {}

    @property
    def opened(self) -> bool:
        """Whether the program is known to have initialised CUDA."""
        return self._local.opened

    def environment(self) -> Environment:
        """The variables that decide about device numbers, as they were when CUDA was first seen initialised."""
        if self._environment is not None:
            return self._environment
        now = Environment.current()
        if self.opened:
            self._environment = now
        return now

    def run(self, request: AnyRequest, on_event: OnEvent, *, trace: bool = False) -> Answer:
        """As LocalRunner.run; `not-initialised` before the program has initialised CUDA."""
        self._named = named.living()
        try:
            return self._local.run(request, on_event, trace=trace)
        finally:
            self._named = {}
            self.environment()

    def pool_names(self) -> tuple[str, ...]:
        """The pools that clients created and that are alive."""
        return self._local.pool_names()

    def close(self) -> tuple[Problem, ...]:
        """Destroys what clients created, and tells what the program should know; nothing when the program ends."""
        if self._door.exiting:
            return ()
        told: list[Problem] = []
        for name in self.pool_names():
            answer = self.run(Destroy(pools=(name,)), lambda event: None)
            notices = answer.result.warnings if answer.result else ()
            told += [Problem(code=notice.code, message=notice.message) for notice in notices]
            if answer.problem and name not in self.pool_names():
                told.append(answer.problem)
        return (*told, *self._local.close())


class _Files:
    """The files of a program, at the turns of its server's life."""

    def __init__(self, door: Door, place: Place) -> None:
        self._door = door
        self._place = place

    def changed(self, state: HostState) -> None:
        try:
            journal.write(self._place, state)
        except OSError as error:
            self._door.tell(f"the journal cannot be written: {error}")

    def withdraw(self) -> None:
        with suppress(OSError):  # the program has given up the right to do so
            self._place.socket.unlink()

    def complain(self, error: Exception) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1]
        self._door.tell(f"a request failed inside: {type(error).__name__}: {error} ({where.filename}:{where.lineno})")
