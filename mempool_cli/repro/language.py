"""The words in which a bug is described: driver calls, loops, sets of handles, counters, and rules for the verdict.

A description is data. `interpret` carries it out through the driver port, and the C writer prints it as a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Value = "int | str"
"""A number, or the name of a variable."""

MIXED = 1
"""What `read_all` says of memory that is not the same word throughout."""

Verdict = Literal["affected", "not-affected", "inconclusive", "present", "absent"]
Variant = Literal["device", "host", "unreachable"]
"""Where the pools are: on a device that the accessor reaches, in host memory, on a device that it does not reach."""


# --- what is done ---


@dataclass(frozen=True)
class Call:
    """One driver call, by the name of its port method.

    `arguments` are numbers, names of variables (`owner_ordinal` and `accessor_ordinal` are set from the start), or the
    structures below. `into`: the variable that gets what it returns, bytes as a number. `code`: the variable that gets
    its result code; without, any code but SUCCESS ends the trial.
    """

    method: str
    arguments: tuple[Argument, ...] = ()
    into: str | None = None
    code: str | None = None


@dataclass(frozen=True)
class Place:
    """The location of the pool's owner (`owner`), or of the accessor."""

    who: Literal["owner", "accessor"]


@dataclass(frozen=True)
class NewPool:
    """The properties of a pool on the owner's place. `max_size` in bytes."""

    max_size: int


@dataclass(frozen=True)
class Access:
    """An entry of cuMemPoolSetAccess."""

    who: Literal["owner", "accessor"]
    flags: Literal["NONE", "READ", "READWRITE"]


Argument = int | str | Place | NewPool | tuple[Access, ...]


@dataclass(frozen=True)
class Repeat:
    """Does `body` so many times; `index` counts from 0."""

    times: int | str
    index: str
    body: tuple[Step, ...]


@dataclass(frozen=True)
class When:
    """Does `then` if the condition holds, else `otherwise`."""

    condition: Condition
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()


@dataclass(frozen=True)
class InArm:
    """Does the steps of the trial's arm; nothing in an arm that is not named."""

    arms: Mapping[str, tuple[Step, ...]]


@dataclass(frozen=True)
class InHistory:
    """Does the steps if the trial has this history."""

    history: str
    body: tuple[Step, ...]


@dataclass(frozen=True)
class InThread:
    """Does the steps in another thread, and waits for it. No index of a loop is known there."""

    body: tuple[Step, ...]


@dataclass(frozen=True)
class Keep:
    """Keeps a variable in the array `array` at `index`."""

    array: str
    index: str
    name: str


@dataclass(frozen=True)
class Fetch:
    """Sets a variable to what `array` has at `index`."""

    name: str
    array: str
    index: str


@dataclass(frozen=True)
class Put:
    """Puts a handle into a set of handles."""

    collection: str
    name: str


@dataclass(frozen=True)
class Take:
    """Takes a handle out of a set of handles, if it is there."""

    collection: str
    name: str


@dataclass(frozen=True)
class Count:
    """One more of this counter."""

    counter: str


@dataclass(frozen=True)
class Note:
    """Counts a result code of this variable: what a call answered, and how often."""

    code: str


@dataclass(frozen=True)
class Stop:
    """The trial has seen enough."""


@dataclass(frozen=True)
class Remark:
    """A comment for the reader of the C file."""

    text: str


Step = Remark | Stop | Call | Repeat | When | InArm | InHistory | InThread | Keep | Fetch | Put | Take | Count | Note


# --- conditions ---


@dataclass(frozen=True)
class Is:
    """A variable holds this: access flags (`NONE`, `READWRITE`), or a result code (`CUDA_SUCCESS`)."""

    name: str
    value: str


@dataclass(frozen=True)
class Holds:
    """A set of handles has the one in this variable."""

    collection: str
    name: str


@dataclass(frozen=True)
class Equals:
    """A variable holds this number."""

    name: str
    number: int


@dataclass(frozen=True)
class Wrote:
    """The word that a variable holds is the one that the kernel writes."""

    name: str


@dataclass(frozen=True)
class Less:
    """An index is below a number of the description."""

    index: str
    number: str


@dataclass(frozen=True)
class Not:
    """The condition does not hold."""

    condition: Condition


Condition = Is | Holds | Less | Equals | Wrote | Not


# --- verdicts ---


@dataclass(frozen=True)
class Rule:
    """The verdict when `counter` is at least `at_least` (or, with `below`, less than that). `why` may name counters."""

    verdict: Verdict
    why: str
    counter: str | None = None
    at_least: int | None = None
    below: int | None = None


@dataclass(frozen=True)
class Counter:
    """What is counted, in words. `of`: the set of handles whose size it is; without, `Count` counts it."""

    name: str
    words: str
    of: str | None = None


def derived(numbers: Mapping[str, int]) -> dict[str, int]:
    """The numbers, and the rounds that make so many attempts, after those of the control."""
    found = dict(numbers)
    if "attempts" in found:
        found["rounds"] = found["control_rounds"] - (-found["attempts"] // found["batch"])
    return found


@dataclass(frozen=True)
class Bug:
    """A driver bug, or a documented behaviour that bites (a trap).

    The trials are each arm in each history, `rules` judge each; the verdict is that of the arms that `decides` names,
    over all their histories and repeats. `numbers`: constants of the description that options can change.
    `crash_counts`: that the driver kills the process is the behaviour too. `faulting`: arms that may provoke a fault
    of a kernel, which are run only when that is allowed. `enforced`: the counters of an access that got through, and
    of one that was blocked.
    """

    id: str
    kind: Literal["bug", "trap"]
    title: str
    about: str
    sources: tuple[str, ...]
    needs: Mapping[Variant, str]
    arms: Mapping[str, str]
    decides: tuple[str, ...]
    histories: Mapping[str, str]
    numbers: Mapping[str, int]
    steps: tuple[Step, ...]
    counters: tuple[Counter, ...]
    rules: tuple[Rule, ...]
    crash_counts: bool = False
    faulting: tuple[str, ...] = ()
    enforced: tuple[str, str] | None = None
