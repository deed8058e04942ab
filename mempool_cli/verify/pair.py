"""One pair: its trials, one child after the other, and what they amount to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import msgspec

from mempool_cli.child import Outcome
from mempool_cli.driver import DriverSource
from mempool_cli.driver.port import AccessFlags, Location
from mempool_cli.locations import owner_of, spell_location
from mempool_cli.model import (
    WORST_FIRST,
    Access,
    NegativeResult,
    NegativeVerdict,
    Order,
    PairResult,
    PairVerdict,
    Path,
    PathResult,
    PathVerdict,
    UngrantedCopy,
)
from mempool_cli.verify.bench import Unready
from mempool_cli.verify.negative import CopiesPlan, NegativePlan, Variant, Way, copy_paths, judge
from mempool_cli.verify.schedule import Steps, Work
from mempool_cli.verify.trial import Granted, PairPlan, Part, Ready, Sound, Tried
from mempool_cli.wording import place_name

ORDERS: tuple[Order, ...] = ("grant-first", "allocate-first")
PATHS: tuple[Path, ...] = (
    "kernel-write",
    "kernel-read",
    "atomic-add",
    "peer-copy-write",
    "peer-copy-read",
    "copy-write",
    "copy-read",
)
VARIANTS: tuple[Variant, ...] = ("never-granted", "revoked")
WAYS: tuple[Way, ...] = ("write", "read")

_LEAST_FIRST: tuple[tuple[int, Access], ...] = (
    (AccessFlags.NONE, "none"),
    (AccessFlags.READ, "r"),
    (AccessFlags.READWRITE, "rw"),
)
# What a processor, or a simulator, gets through at the least: slow is no hang.
_BYTES_A_SECOND = 64 << 20

_OF_NEGATIVES: dict[NegativeVerdict, PairVerdict] = {
    "leaked": "leaked",
    "hang": "hang",
    "error": "error",
    "inconclusive": "inconclusive",
}


@dataclass(frozen=True)
class Pair:
    """Memory of a pool there, and the device that accesses it."""

    location: Location
    accessor: int

    @property
    def owner(self) -> int | None:
        """The device that owns the memory; None for the host."""
        return owner_of(self.location)

    @property
    def name(self) -> str:
        """`device 5 with memory of device 2`."""
        return f"device {self.accessor} with memory of {place_name(self.owner, spell_location(self.location))}"

    @property
    def devices(self) -> frozenset[int]:
        """Those that its trials use."""
        return frozenset({self.accessor} if self.owner is None else {self.accessor, self.owner})


@dataclass(frozen=True)
class Choices:
    """How each pair is tried. `sizes` in bytes, ascending; `limit` in seconds, of a try of a few MiB."""

    sizes: tuple[int, ...]
    repeat: int
    limit: float
    allow_faults: bool


def untried(
    pair: Pair, why: str, *, capable: bool | None, verdict: Literal["skipped", "error", "inconclusive"] = "skipped"
) -> PairResult:
    """A pair that is not tried: it cannot be, or (`error`) nobody says whether it can, or (`inconclusive`) it could."""
    return PairResult(
        owner=pair.owner,
        accessor=pair.accessor,
        location=spell_location(pair.location),
        capable=capable,
        verdict=verdict,
        why=why,
    )


def steps(pair: Pair, source: DriverSource, choices: Choices) -> Steps[PairResult]:
    """All trials of a pair that can be tried."""
    encoded = source.encode().decode()
    tried = _Positive(pair, encoded, choices)
    negatives: list[NegativeResult] = []
    copies: tuple[UngrantedCopy, ...] = ()
    last, trials = (yield from tried.steps()), "paths with access"
    if choices.allow_faults and pair.owner != pair.accessor and not last.stuck:
        trials = "copies without access"
        copies, last = yield from _copies(pair, encoded, choices)
        for variant, way in product(VARIANTS, WAYS):
            if last.stuck:
                break
            trials = f"{way} without access, {variant}"
            negative, last = yield from _negative(pair, encoded, choices, variant, way)
            negatives.append(negative)
    verdict, why = _worst(tried.paths, negatives, f"{trials}: {last.end}" if last.stuck else None)
    return PairResult(
        owner=pair.owner,
        accessor=pair.accessor,
        location=spell_location(pair.location),
        capable=True,
        verdict=verdict,
        why=why,
        access=tried.access,
        native_atomics=tried.native_atomics,
        paths=tuple(tried.paths),
        negatives=tuple(negatives),
        ungranted_copies=copies,
        remains=last.remains,
    )


class _Positive:
    """The paths with access. One child tries them all, unless a path costs it its context, its life or its time."""

    def __init__(self, pair: Pair, source: str, choices: Choices) -> None:
        self._plan = PairPlan(
            source=source,
            owner=pair.location,
            accessor=pair.accessor,
            sizes=choices.sizes,
            repeat=choices.repeat,
            trials=tuple(product(ORDERS, PATHS)),
        )
        self._limit = choices.limit + max(choices.sizes) // _BYTES_A_SECOND
        self._left = list(self._plan.trials)
        self._flags: list[int] = []
        self.paths: list[PathResult] = []
        self.native_atomics: bool | None = None

    @property
    def access(self) -> Access | None:
        """What the driver read after the grants, the least of it; None when it was never asked."""
        if not self._flags:
            return None
        known = [access for flags, access in _LEAST_FIRST if flags in self._flags]
        return known[0] if set(self._flags) <= {flags for flags, _ in _LEAST_FIRST} else "unknown"

    def steps(self) -> Steps[Outcome]:
        """Fills `paths`; how the last process ended."""
        while True:
            plan = msgspec.structs.replace(self._plan, trials=tuple(self._left))
            outcome = yield Work("mempool_cli.verify.trial:pair", msgspec.json.encode(plan), self._limit)
            self._take(outcome)
            if not self._left:
                return outcome

    def _take(self, outcome: Outcome) -> None:
        parts = [msgspec.json.decode(part, type=Part) for part in outcome.parts]
        done = [part.result for part in parts if isinstance(part, Tried)]
        ready = [part for part in parts if isinstance(part, Ready)]
        self.paths += done
        del self._left[: len(done)]
        self._flags += [part.flags for part in parts if isinstance(part, Granted)]
        self.native_atomics = ready[0].native_atomics if ready else self.native_atomics
        unready = [part for part in parts if isinstance(part, Unready)]
        sound = {part.order for part in parts if isinstance(part, Sound)}
        if unready:
            self._give_up(unready[0].verdict, unready[0].why, unready[0])
        elif outcome.ended != "returned" or not done:
            self._end_of_child(outcome, started=bool(ready), sound=bool(self._left) and self._left[0][0] in sound)
        if outcome.stuck:
            self._give_up("skipped", "an earlier process did not end", None)

    def _end_of_child(self, outcome: Outcome, *, started: bool, sound: bool) -> None:
        """The path during which it ended, and what that means for the others. Only the access itself is a hang."""
        if not self._left:
            return
        order, path = self._left.pop(0)
        self.paths.append(
            PathResult(
                order=order,
                path=path,
                verdict="hang" if outcome.ended == "hung" and sound else "error",
                why=outcome.end,
                remains=outcome.remains,
            )
        )
        if not started and not outcome.stuck:
            self._give_up("error", outcome.end, None)

    def _give_up(self, verdict: PathVerdict, why: str, unready: Unready | None) -> None:
        driver = unready.driver if unready else None
        self.paths += [
            PathResult(order=order, path=path, verdict=verdict, why=why, driver=driver) for order, path in self._left
        ]
        self._left.clear()


def _negative(
    pair: Pair,
    source: str,
    choices: Choices,
    variant: Variant,
    way: Way,
) -> Steps[tuple[NegativeResult, Outcome]]:
    """The twin, whose access is there, and then the kernel that has none; and how the last process ended."""
    outcomes: list[Outcome] = []
    for granted in (True, False):
        plan = NegativePlan(
            source=source,
            owner=pair.location,
            accessor=pair.accessor,
            variant=variant,
            way=way,
            granted=granted,
        )
        outcome = yield Work("mempool_cli.verify.negative:kernel", msgspec.json.encode(plan), choices.limit)
        outcomes.append(outcome)
        if outcome.stuck:
            break
    verdict, why, seen = judge(way, outcomes)
    result = NegativeResult(
        variant=variant,
        access=way,
        verdict=verdict,
        why=why,
        driver=seen.answer if seen else None,
        remains=outcome.remains,
    )
    return result, outcome


def _copies(pair: Pair, source: str, choices: Choices) -> Steps[tuple[tuple[UngrantedCopy, ...], Outcome]]:
    """What came of each, or why that is not known; and how their process ended."""
    plan = CopiesPlan(source=source, owner=pair.location, accessor=pair.accessor)
    outcome = yield Work("mempool_cli.verify.negative:copies", msgspec.json.encode(plan), choices.limit)
    found = [msgspec.json.decode(part, type=UngrantedCopy) for part in outcome.parts if part != b"alive"]
    why = outcome.result.decode() if outcome.result else outcome.end
    left = copy_paths(pair.location)[len(found) :]
    return (*found, *(UngrantedCopy(path=path, arrived=None, why=why) for path in left)), outcome


def _worst(
    paths: Sequence[PathResult], negatives: Sequence[NegativeResult], stuck: str | None
) -> tuple[PairVerdict, str]:
    """The verdict of the pair, and why. `stuck`: how a process ended after which nothing more was tried."""
    found: list[tuple[PairVerdict, str]] = [(path.verdict, f"{path.path}, {path.order}: {path.why}") for path in paths]
    found += [
        (_OF_NEGATIVES.get(each.verdict, "ok"), f"{each.access} without access, {each.variant}: {each.why}")
        for each in negatives
    ]
    found += [("error", stuck)] if stuck else []
    verdict, why = min(found, key=lambda each: WORST_FIRST.index(each[0]))
    return verdict, "all that was tried works" if verdict == "ok" else why
