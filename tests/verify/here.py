"""Trials of verify without processes: nothing may hang or end the process."""

from __future__ import annotations

from itertools import product
from typing import cast

import msgspec

from mempool_cli.child import Reports
from mempool_cli.driver import driver_source
from mempool_cli.driver.port import HOST_LOCATION, Location, device_location
from mempool_cli.model import Order, Path, PathResult
from mempool_cli.verify import negative, trial
from mempool_cli.verify.pair import ORDERS, PATHS

SIZES = (8, 1 << 16, (1 << 17) + 64)


class Heard:
    """As child.Reports: keeps what a trial says."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.calls: list[str] = []
        self.last_call = ""

    def __call__(self, call: str) -> None:
        self.calls.append(call)
        self.last_call = call

    def at(self, call: str) -> None:
        self.last_call = call

    def part(self, data: bytes) -> None:
        self.parts.append(data)


def place(owner: int | None) -> Location:
    return HOST_LOCATION if owner is None else device_location(owner)


def parts(spec: str, owner: int | None, accessor: int, **replaced: object) -> list[trial.Part]:
    """What the child of a pair tells, in its order."""
    plan = trial.PairPlan(
        source=driver_source(spec).encode().decode(),
        owner=place(owner),
        accessor=accessor,
        sizes=SIZES,
        repeat=2,
        trials=tuple(product(ORDERS, PATHS)),
    )
    heard = Heard()
    trial.pair(msgspec.json.encode(msgspec.structs.replace(plan, **replaced)), cast(Reports, heard))
    return [msgspec.json.decode(part, type=trial.Part) for part in heard.parts]


def tried(
    spec: str, owner: int | None = 0, accessor: int = 1, **replaced: object
) -> dict[tuple[Order, Path], PathResult]:
    """The results by order and path."""
    results = [part.result for part in parts(spec, owner, accessor, **replaced) if isinstance(part, trial.Tried)]
    return {(result.order, result.path): result for result in results}


def verdicts(spec: str, owner: int | None = 0, accessor: int = 1) -> dict[Path, str]:
    """The verdict of each path, which has to be the same in both orders."""
    found = tried(spec, owner, accessor)
    first, second = ({path: found[order, path].verdict for path in PATHS} for order in ORDERS)
    assert first == second
    return dict(first)


def without_access(
    spec: str, owner: int | None, accessor: int, variant: negative.Variant, way: negative.Way, *, granted: bool = False
) -> negative.Seen:
    """What the child of a kernel without access returns; `granted`: that of its twin."""
    plan = negative.NegativePlan(
        source=driver_source(spec).encode().decode(),
        owner=place(owner),
        accessor=accessor,
        variant=variant,
        way=way,
        granted=granted,
    )
    done = negative.kernel(msgspec.json.encode(plan), cast(Reports, Heard()))
    return msgspec.json.decode(done, type=negative.Seen)
