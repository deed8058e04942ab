"""Many clients at once, good and bad ones: the session answers each as if it were alone, and grows no fatter."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from session.hosts import SECONDS, SIM, start

from mempool_cli import __version__
from mempool_cli.requests import AnyRequest, Create, Destroy, Grant, List, Probe, Revoke, Show
from mempool_cli.session import lifecycle, protocol
from mempool_cli.session.directory import Place
from mempool_cli.session.protocol import MAX_REQUEST_BYTES

CLIENTS = 50
FLAT_KIB = 4096


def request_line(request: AnyRequest, version: str = __version__) -> bytes:
    return protocol.encode(protocol.Run(version=version, messages=protocol.messages_digest(), request=request))


class Wire:
    """A connection that reads line by line."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        while True:
            try:
                self.socket.connect(os.fspath(path))
                break
            except BlockingIOError:  # the queue is full
                time.sleep(0.001)
        self._lines = self.socket.makefile("rb")

    def close(self) -> None:
        self._lines.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def ask(self, line: bytes) -> dict[str, Any]:
        self.send(line)
        found: dict[str, Any] = json.loads(self._lines.readline())
        return found

    def rest(self) -> bytes:
        return self._lines.read()

    def ended(self) -> bool:
        return self._lines.readline() == b""


class Names:
    """What pools there may be at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.automatic: list[str] = []
        self.certain: set[str] = set()
        self.possible: set[str] = set()

    def note(self, *, automatic: str | None = None, certain: str | None = None, possible: str | None = None) -> None:
        with self._lock:
            self.automatic += [automatic] if automatic else []
            self.certain |= {certain} if certain else set()
            self.possible |= {possible} if possible else set()


class Client:
    """One of many: asks, and is rude now and then. What it asks can be told from what any other asks."""

    def __init__(self, place: Place, names: Names, number: int, phase: int) -> None:
        self._path = place.socket
        self._names = names
        self._who = f"c{number}"
        self._random = random.Random(number * 1000 + phase)
        self._rude = [
            self._hang_up_halfway,
            self._hang_up_unread,
            self._never_read,
            self._junk,
            self._two_mebibytes,
            self._nested,
            self._other_version,
        ]
        self._never_reads: list[Wire] = []
        self._count = 0

    def run(self, requests: int) -> int:
        """How many requests were answered, each by its own answer."""
        self._left = requests
        while self._left > 0:
            with closing(Wire(self._path)) as wire:
                self._good(wire)
            if self._random.random() < 0.3:
                self._random.choice(self._rude)()
        for wire in self._never_reads:
            wire.close()
        return self._count

    def _good(self, wire: Wire) -> None:
        """The life of a pool, or of half of one that stays until the next."""
        name = f"{self._who}-{self._random.randrange(3)}"
        automatic = self._random.random() < 0.1
        made = self._result(wire, Create(location=str(self._random.randrange(4)), name=None if automatic else name))
        if automatic:
            name = made["pool"]["name"]
            self._names.note(automatic=name)
        assert made["pool"]["name"] == name
        owner = made["pool"]["owner"]
        peer = (owner + 1 + self._random.randrange(3)) % 4
        granted = self._result(wire, Grant(pool=name, to=(str(peer),)))
        assert (granted["pool"]["name"], granted["granted"]) == (name, [peer])
        assert self._result(wire, Show(pool=name))["pool"]["name"] == name
        (row,) = self._result(wire, Probe(pools=(name,)))["rows"]
        assert row["pool"]["name"] == name
        assert {cell["device"] for cell in row["cells"] if cell["access"] == "rw"} == {owner, peer}
        assert self._result(wire, Revoke(pool=name, devices=(str(peer),)))["revoked"] == [peer]
        if automatic and self._random.random() < 0.1:
            self._names.note(certain=name)
            return
        (gone,) = self._result(wire, Destroy(pools=(name,)))["destroyed"]
        assert gone["pool"]["name"] == name

    def _result(self, wire: Wire, request: AnyRequest) -> dict[str, Any]:
        self._left -= 1
        reply = wire.ask(request_line(request))
        assert reply["type"] == "answer"
        answer = reply["answer"]
        assert answer["failure"] is None, answer["failure"]
        self._count += 1
        result: dict[str, Any] = answer["result"]
        return result

    # --- rude ---

    def _hang_up_halfway(self) -> None:
        with closing(Wire(self._path)) as wire:
            wire.send(request_line(Probe())[: self._random.randrange(1, 50)])

    def _hang_up_unread(self) -> None:
        name = f"{self._who}-gone-{self._random.randrange(10**9)}"
        self._names.note(possible=name)
        with closing(Wire(self._path)) as wire:
            wire.send(request_line(Create(location="host", name=name)))

    def _never_read(self) -> None:
        if len(self._never_reads) < 2:
            wire = Wire(self._path)
            self._never_reads.append(wire)
            wire.socket.setblocking(False)
            with suppress(BlockingIOError):
                for _ in range(2000):
                    wire.socket.sendall(request_line(Probe()))

    def _refused(self, data: bytes) -> None:
        with closing(Wire(self._path)) as wire:
            assert wire.ask(data)["problem"]["code"] == "bad-request"
            assert wire.ended()

    def _junk(self) -> None:
        self._refused(self._random.randbytes(1000).replace(b"\n", b"") + b"\n")

    def _two_mebibytes(self) -> None:
        self._refused(b"x" * 2 * MAX_REQUEST_BYTES + b"\n")

    def _nested(self) -> None:
        self._refused(b'{"type":' * 20_000 + b"\n")

    def _other_version(self) -> None:
        with closing(Wire(self._path)) as wire:
            assert wire.ask(b'{"type":"hello","version":"9.9","more":[1]}\n')["type"] == "state"
            assert wire.ask(request_line(List(), version="9.9"))["problem"]["code"] == "other-version"
            assert wire.ended()


def rss_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def settled_descriptors(pid: int, wanted: int) -> int:
    """How many it has, once it has noticed that its clients are gone."""
    deadline = time.monotonic() + SECONDS
    while descriptors(pid) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    return descriptors(pid)


def phase(place: Place, number: int, requests: int) -> int:
    """All clients at once; how many requests were answered. No pool is lost or doubled, and none stays."""
    names = Names()
    with ThreadPoolExecutor(CLIENTS) as threads:
        clients = [Client(place, names, each, number) for each in range(CLIENTS)]
        answered: int = sum(threads.map(lambda client: client.run(requests // CLIENTS), clients))
    with closing(Wire(place.socket)) as wire:
        listed = wire.ask(request_line(List()))["answer"]["result"]["pools"]
        alive = [each["pool"]["name"] for each in listed if "created" in each["pool"]["roles"]]
        assert len(alive) == len(set(alive))
        assert names.certain <= set(alive) <= names.certain | names.possible
        assert len(names.automatic) == len(set(names.automatic))
        gone = wire.ask(request_line(Destroy(pools=tuple(alive))))["answer"]["result"]["destroyed"]
        assert [each["pool"]["name"] for each in gone] == alive
    return answered


def test_many_clients(runtime: Path, place: Place, much: int) -> None:
    pid = start()
    with closing(Wire(place.socket)) as wire:
        assert wire.ask(b'{"type":"hello"}\n')["type"] == "state"
        before = descriptors(pid) - 1
    used, answered, begun = [], 0, time.monotonic()
    for number in range(6):
        answered += phase(place, number, 150 if much == 1 else 7000)
        assert settled_descriptors(pid, before) == before
        used.append(rss_kib(pid))
    rate = answered / (time.monotonic() - begun)
    print(f"\n{CLIENTS} clients, {answered} requests, {rate:.0f} a second; RSS {used} KiB; {before} descriptors")
    # The least of each half, but for the first, which warms up: how much is in use depends on which clients met.
    assert min(used[3:]) - min(used[1:3]) < FLAT_KIB
    stopped = lifecycle.stop("default", SIM)
    assert (stopped.session.pools, stopped.not_destroyed, stopped.warnings) == ((), (), ())
