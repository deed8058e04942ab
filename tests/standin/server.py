"""Simulated machines behind Unix sockets, for the stand-in library; connection.h has the protocol.

Started by stand_in.py, which sends one JSON object a line on stdin, each answered by one line on stdout:
`{"socket": path, "profile": {...}, "answers": {...}}` puts a machine there, `{"close": path}` takes it away. Each
connection is a process on that machine. End of file ends the server, so it cannot outlive the tests.
"""

from __future__ import annotations

import os
import re
import selectors
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec

from mempool_cli.driver.port import NO_CALLS, AccessEntry, Driver, Location, PoolProperties, driver_call
from mempool_cli.driver.sim.calls import SimulatedCrash
from mempool_cli.driver.sim.machine import Machine
from mempool_cli.driver.sim.profile import Profile
from mempool_cli.errors import DriverError

from .program import Program

_VERSION_SUFFIX = re.compile(r"_v\d$")
_U64 = (1 << 64) - 1

Answers = dict[str, list[int | str]]
"""What calls answer whatever the machine thinks: the code, and the results as connection.h spells them."""


class Order(msgspec.Struct, forbid_unknown_fields=True):
    """What the tests ask of the server."""

    socket: str = ""
    profile: Profile | None = None
    answers: Answers = {}
    close: str = ""


def _create(program: Program, type_: int, id_: int, max_size: int, allocation_type: int, handle_types: int) -> int:
    return program.mem_pool_create(PoolProperties(Location(type_, id_), max_size & _U64, allocation_type, handle_types))


def _set_access(program: Program, pool: int, *fields: int) -> None:
    groups = zip(*[iter(fields)] * 3, strict=True)
    program.mem_pool_set_access(pool, [AccessEntry(Location(type_, id_), flags) for type_, id_, flags in groups])


def _get_access(program: Program, pool: int, type_: int, id_: int) -> int:
    return program.mem_pool_get_access(pool, Location(type_, id_))


def _set_attribute(program: Program, pool: int, attribute: int, value: int) -> None:
    program.mem_pool_set_attribute(pool, attribute, value & _U64)


def _get_function(program: Program, module: int, name: bytes) -> int:
    return program.module_get_function(module, name.decode())


def _launch(program: Program, function: int, *numbers: Any) -> None:
    *sizes, _shared, stream, parameters = numbers
    grid, block = sizes[:3], sizes[3:]
    program.launch_kernel(function, (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), stream, parameters)


def _elapsed_time(program: Program, start: int, end: int) -> int:
    return round(program.event_elapsed_time(start, end) * 1e6)


_METHODS = {
    driver_call(name): name
    for cls in (Driver, Program)
    for name in vars(cls)
    if not name.startswith("_") and name not in NO_CALLS
}
_CALLS: dict[str, Callable[..., Any]] = {
    **{call: getattr(Program, method) for call, method in _METHODS.items()},
    "cuInit": lambda program, flags: program.init(),
    "cuMemPoolCreate": _create,
    "cuMemPoolSetAccess": _set_access,
    "cuMemPoolGetAccess": _get_access,
    "cuMemPoolSetAttribute": _set_attribute,
    "cuEventElapsedTime": _elapsed_time,
    "cuModuleGetFunction": _get_function,
    "cuLaunchKernel": _launch,
}


class Connection:
    """One process of the program under test, from its greeting to its end."""

    def __init__(self, machine: Machine, answers: Answers, stream: socket.socket) -> None:
        self._machine = machine
        self._answers = answers
        self._stream = stream
        self._program: Program | None = None
        self._lines = Lines()

    def serve(self) -> bool:
        """Answers what has arrived. False when the connection is over: its program ended, or met a fault of ours."""
        try:
            data = self._stream.recv(1 << 16)
            for line in self._lines.feed(data):
                self._serve_line(line)
        except OSError:
            return False
        except Exception:  # the machines of other tests live on
            traceback.print_exc()
            return False
        return bool(data)

    def _serve_line(self, line: str) -> None:
        if self._program is None:
            self._program = Program(self._machine, _visible(line))
        else:
            reply = f"{self._answer(self._program, *line.split())}\n".encode()
            file, self._program.unsent = self._program.unsent, None
            self._send(reply, file)

    def _send(self, reply: bytes, file: BinaryIO | None) -> None:
        if file is None:
            self._stream.sendall(reply)
            return
        with file:
            socket.send_fds(self._stream, [reply], [file.fileno()])

    def _answer(self, program: Program, call: str, thread: str, *arguments: str) -> str:
        plain = _VERSION_SUFFIX.sub("", call)
        if plain in self._answers:
            return " ".join(str(part) for part in self._answers[plain])
        program.capture.calling_thread = int(thread)
        try:
            result = _CALLS[plain](program, *map(_decode, arguments))
        except DriverError as error:
            return str(error.words.code)
        except SimulatedCrash:
            return "crash"
        return f"0 {_encode(result)}"


def _visible(greeting: str) -> str | None:
    """CUDA_VISIBLE_DEVICES of the program, from `hello` or `hello x<hexadecimal>`."""
    _, _, digits = greeting.partition(" x")
    return bytes.fromhex(digits).decode("utf-8", "surrogateescape") if " x" in greeting else None


def _decode(argument: str) -> int | bytes:
    return bytes.fromhex(argument[1:]) if argument.startswith("x") else int(argument)


def _encode(result: Any) -> str:
    if result is None:
        return ""
    if isinstance(result, str):
        result = result.encode("utf-8", "surrogateescape")
    if isinstance(result, bytes):
        return result.hex()
    return " ".join(str(int(number)) for number in (result if isinstance(result, tuple) else (result,)))


class Lines:
    """Whole lines out of a stream of bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield line.decode()


class Server:
    """All machines, in one loop: calls are answered one after the other."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._listeners: dict[str, socket.socket] = {}
        self._orders = Lines()

    def run(self) -> None:
        """Serves until standard input ends."""
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._obey)
        while True:
            for key, _ in self._selector.select():
                if isinstance(key.fileobj, socket.socket) and key.fileobj.fileno() < 0:
                    continue  # an order that came up in the same turn has closed it
                if not key.data() and key.fileobj == sys.stdin.fileno():
                    return

    def _obey(self) -> bool:
        data = os.read(sys.stdin.fileno(), 1 << 16)
        for line in self._orders.feed(data):
            order = msgspec.json.decode(line, type=Order)
            if order.profile is not None:
                self._listen(order.socket, Machine(order.profile), order.answers)
            else:
                self._drop(self._listeners.pop(order.close))
            print("done", flush=True)
        return bool(data)

    def _listen(self, path: str, machine: Machine, answers: Answers) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        self._listeners[path] = listener

        def accept() -> bool:
            stream, _ = listener.accept()
            connection = Connection(machine, answers, stream)
            self._selector.register(stream, selectors.EVENT_READ, lambda: connection.serve() or self._drop(stream))
            return True

        self._selector.register(listener, selectors.EVENT_READ, accept)

    def _drop(self, stream: socket.socket) -> bool:
        self._selector.unregister(stream)
        stream.close()
        return False


if __name__ == "__main__":
    Server().run()
