"""Carries out the description of a bug through the driver port."""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mempool_cli.driver import kernels
from mempool_cli.driver.codes import Code, code_name
from mempool_cli.driver.kernels import WORD_BYTES
from mempool_cli.driver.port import AccessEntry, AccessFlags, Driver, Location, LocationType, PoolProperties
from mempool_cli.errors import DriverError
from mempool_cli.repro.language import (
    MIXED,
    Access,
    Argument,
    Bug,
    Call,
    Condition,
    Count,
    Equals,
    Fetch,
    Holds,
    InArm,
    InHistory,
    InThread,
    Is,
    Keep,
    Less,
    NewPool,
    Not,
    Note,
    Place,
    Put,
    Repeat,
    Step,
    Stop,
    Take,
    When,
    Wrote,
)

WORD = 0x5EED_F00D
_NON_BLOCKING = 1


@dataclass
class Machine:
    """The state of one trial: where it is, and its variables, arrays, sets of handles, counters and result codes."""

    driver: Driver
    owner: Location
    accessor: Location
    arm: str
    history: str
    variables: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, dict[int, int]] = field(default_factory=dict)
    sets: dict[str, set[int]] = field(default_factory=dict)
    counts: Tally[str] = field(default_factory=Tally)
    codes: Tally[str] = field(default_factory=Tally)
    stopped: bool = False

    def __post_init__(self) -> None:
        self.variables |= {"owner_ordinal": self.owner.id, "accessor_ordinal": self.accessor.id}

    def run(self, steps: Sequence[Step]) -> None:
        """Does the steps. DriverError when a call fails that has to succeed."""
        for step in steps:
            if self.stopped:
                return
            self._step(step)

    def _step(self, step: Step) -> None:
        match step:
            case Call():
                self._call(step)
            case Repeat(times, index, body):
                for number in range(self._value(times)):
                    self.variables[index] = number
                    self.run(body)
            case When(condition, then, otherwise):
                self.run(then if self._holds(condition) else otherwise)
            case InArm(arms):
                self.run(arms.get(self.arm, ()))
            case InThread(body):
                self._in_thread(body)
            case InHistory(history, body):
                self.run(body if history == self.history else ())
            case _:
                self._record(step)

    def _in_thread(self, steps: Sequence[Step]) -> None:
        raised: list[DriverError] = []

        def work() -> None:
            try:
                self.run(steps)
            except DriverError as error:
                raised.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]

    def _record(self, step: Step) -> None:
        match step:
            case Keep(array, index, name):
                self.arrays.setdefault(array, {})[self.variables[index]] = self.variables[name]
            case Fetch(name, array, index):
                self.variables[name] = self.arrays[array][self.variables[index]]
            case Put(collection, name):
                self.sets.setdefault(collection, set()).add(self.variables[name])
            case Take(collection, name):
                self.sets.setdefault(collection, set()).discard(self.variables[name])
            case Stop():
                self.stopped = True
            case Count(counter):
                self.counts[counter] += 1
            case Note(code):
                self.codes[code_name(self.variables[code])] += 1

    def _call(self, call: Call) -> None:
        own: dict[str, Callable[..., Any]] = {
            "use_device": self._use_device,
            "use_accessor": self._use_accessor,
            "write_by_kernel": self._write_by_kernel,
            "read_by_owner": self._read_by_owner,
            "read_all": self._read_all,
            "retain_both": self._retain_both,
        }
        method = own.get(call.method) or getattr(self.driver, call.method)
        try:
            result = method(*(self._argument(each) for each in call.arguments))
        except DriverError as error:
            if call.code is None or not _may_fail(call, error):
                raise
            self.variables[call.code] = error.words.code
            return
        if call.code is not None:
            self.variables[call.code] = 0
        if call.into is not None:
            self.variables[call.into] = _number(result)

    def _use_device(self) -> int:
        """A stream of a context on the owner, or on the accessor of host memory."""
        return self._stream_on(self.owner.id if self.owner.type == self.accessor.type else self.accessor.id)

    def _use_accessor(self) -> int:
        return self._stream_on(self.accessor.id)

    def _stream_on(self, device: int) -> int:
        self.driver.ctx_set_current(self.driver.device_primary_ctx_retain(device))
        return self.driver.stream_create(_NON_BLOCKING)

    def _write_by_kernel(self, pointer: int, stream: int) -> None:
        """A kernel in the current context writes WORD, and is waited for: DriverError when it could not."""
        function = self.driver.module_get_function(self.driver.module_load_data(kernels.IMAGE), kernels.WRITE)
        parameters = kernels.write_parameters(pointer, WORD)
        self.driver.launch_kernel(function, (1, 1, 1), (1, 1, 1), stream, parameters)
        self.driver.stream_synchronize(stream)

    def _retain_both(self) -> None:
        """Contexts of both devices, the owner's current; none for host memory."""
        if self.owner.type == LocationType.DEVICE:
            self.driver.device_primary_ctx_retain(self.accessor.id)
            self.driver.ctx_set_current(self.driver.device_primary_ctx_retain(self.owner.id))

    def _read_by_owner(self, pointer: int) -> int:
        """The word at `pointer`, as its owner sees it: the device, in its context, or the processor."""
        if self.owner.type != LocationType.DEVICE:
            return _number(self.driver.load(pointer, WORD_BYTES))
        self.driver.ctx_set_current(self.driver.device_primary_ctx_retain(self.owner.id))
        return _number(self.driver.memcpy_dtoh(pointer, WORD_BYTES))

    def _read_all(self, pointer: int, size: int) -> int:
        """The word of which all `size` bytes consist, as the current context sees them; MIXED for several."""
        data = self.driver.memcpy_dtoh(pointer, size)
        word = data[:WORD_BYTES]
        return _number(word) if data == word * (size // WORD_BYTES) else MIXED

    def _argument(self, argument: Argument) -> Any:
        match argument:
            case int() | str():
                return self._value(argument)
            case Place(who):
                return self._place(who)
            case NewPool(max_size):
                return PoolProperties(self.owner, max_size)
            case _:
                return [self._entry(entry) for entry in argument]

    def _entry(self, entry: Access) -> AccessEntry:
        return AccessEntry(self._place(entry.who), AccessFlags[entry.flags])

    def _place(self, who: str) -> Location:
        return self.owner if who == "owner" else self.accessor

    def _value(self, value: int | str) -> int:
        return value if isinstance(value, int) else self.variables[value]

    def _holds(self, condition: Condition) -> bool:
        match condition:
            case Is(name, value):
                return self.variables[name] == (Code[value] if value in Code.__members__ else AccessFlags[value])
            case Equals(name, number):
                return self.variables[name] == number
            case Wrote(name):
                return self.variables[name] == WORD
            case Less(index, number):
                return self.variables[index] < self.variables[number]
            case Holds(collection, name):
                return self.variables[name] in self.sets.get(collection, ())
            case Not(inner):
                return not self._holds(inner)


def _number(result: int | bytes) -> int:
    return int.from_bytes(result, "little") if isinstance(result, bytes) else int(result)


def _may_fail(call: Call, error: DriverError) -> bool:
    """A kernel's own failure shows when it is waited for; one that cannot even be started proves nothing."""
    return call.method != "write_by_kernel" or error.words.call == "cuStreamSynchronize"


def counters(bug: Bug, machine: Machine) -> Mapping[str, int]:
    """Every counter of the description."""
    return {
        counter.name: len(machine.sets.get(counter.of, ())) if counter.of else machine.counts[counter.name]
        for counter in bug.counters
    }
