"""The agent at work: a session's server in a thread of the program, over the program's own CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from mempool_cli.agent import named
from mempool_cli.agent.door import Door
from mempool_cli.agent.errands import Errands
from mempool_cli.agent.readiness import check_initialised
from mempool_cli.driver import driver_source
from mempool_cli.errors import Problem
from mempool_cli.model import Answer
from mempool_cli.operations import LocalRunner
from mempool_cli.requests import AnyRequest, OnEvent
from mempool_cli.session import journal
from mempool_cli.session.directory import Place
from mempool_cli.session.environment import Environment
from mempool_cli.session.lease import Lease
from mempool_cli.session.protocol import HostState
from mempool_cli.session.server import Server, listener_of


def serve(door: Door) -> None:
    """Serves the clients of this program, and runs its orders, until it ends or the agent is detached."""
    place = Place(Path(door.directory), False, door.name)
    lease = Lease("program", door.name, 0)
    lease.started = door.started
    runner = ProgramRunner(door, lease)
    errands = Errands(door, runner)
    source = driver_source(None)
    listener = listener_of(door.hand_over())
    files = _Files(door, place)
    server = Server(
        listener,
        runner,
        lease,
        files,
        driver=source.digest,
        sim=None,
        here=runner.environment,
        tick=errands.tick,
        turn=door.turn,
    )
    with closing(server):
        door.server = server
        files.changed(server.state())
        if door.leaving:
            server.request_stop()
        server.serve()
        with door.turn:
            errands.finish()


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
        """Destroys what clients created; nothing when the program ends, and all of it with it."""
        return () if self._door.exiting else self._local.close()


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
        self._place.socket.unlink(missing_ok=True)
