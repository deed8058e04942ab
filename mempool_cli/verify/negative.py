"""What happens in the children that try to get at memory without access: a kernel must not get through.

Each has a twin that differs only in the grant, without which a fault would prove nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from mempool_cli.child import Outcome, Reports
from mempool_cli.driver.codes import Code
from mempool_cli.driver.longs import LONG_BYTES
from mempool_cli.driver.port import AccessFlags, DeviceAttribute, Location, LocationType
from mempool_cli.errors import DriverError, DriverWords, MempoolError
from mempool_cli.locations import owner_of
from mempool_cli.model import NegativeVerdict, Path, UngrantedCopy
from mempool_cli.verify.bench import Bench, unready
from mempool_cli.verify.failures import wanting
from mempool_cli.verify.paths import movers
from mempool_cli.verify.payload import POISON, Pattern, payloads
from mempool_cli.verify.trial import open_quietly, sides

_BYTES = 4096
READY = b"ready"
"""The part that comes before the kernel: what hangs from here on is the kernel."""

Variant = Literal["never-granted", "revoked"]
Way = Literal["write", "read"]


class NegativePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel. `granted`: it is the twin, whose access is there when it runs."""

    source: str
    owner: tuple[int, int]
    accessor: int
    variant: Variant
    way: Way
    granted: bool


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel came to. `flags`: the access that the driver read just before; `answer`: what failed.

    `arrived`: all of the payload was where it should not get; `effect`: any of it was, or memory was changed; both None
    where nobody could look. `before`: what went wrong before the kernel ran, and `spent` that it says nothing.
    `pageable`: the device may use any memory of the host.
    """

    flags: int | None = None
    answer: DriverWords | None = None
    arrived: bool | None = None
    effect: bool | None = None
    before: str | None = None
    spent: bool = False
    pageable: bool = False


def kernel(payload: bytes, reports: Reports) -> bytes:
    """NegativePlan -> Seen."""
    plan = msgspec.json.decode(payload, type=NegativePlan)
    try:
        bench = _lay_out(plan.source, Location(*plan.owner), plan.accessor, reports)
        _set_stage(bench, plan)
    except (DriverError, MempoolError) as error:
        found = unready(error)
        spent = found.verdict == "inconclusive"
        why = f"{error.words.call} failed before the kernel" if isinstance(error, DriverError) else found.why
        return msgspec.json.encode(Seen(before=found.why if spent else why, answer=found.driver, spent=spent))
    reports.part(READY)
    return msgspec.json.encode(_seen(bench, plan))


def _lay_out(source: str, location: Location, accessor: int, reports: Reports) -> Bench:
    driver = open_quietly(source, reports)
    owner, device = sides(driver, location, accessor, lambda: reports.part(b"alive"))
    bench = Bench(driver, owner, device, timed=False)
    bench.payload, bench.view = bench.allocate(_BYTES), bench.allocate(_BYTES)
    bench.create(location)
    bench.memory = bench.allocate(_BYTES, bench.pool)
    return bench


def _set_stage(bench: Bench, plan: NegativePlan) -> None:
    """The grants up to the kernel. Where access is to be revoked, it is used before."""
    if plan.granted or plan.variant == "revoked":
        bench.set_access(AccessFlags.READWRITE)
    if plan.variant == "revoked":
        bench.accessor.carry(bench.memory, bench.payload, _BYTES)
        bench.accessor.wait()
        if not plan.granted:
            bench.set_access(AccessFlags.NONE)
    bench.read_access()


def _move(bench: Bench, path: Path, payload: Pattern) -> DriverWords | None:
    """The payload goes this way, over what is no payload; what failed."""
    owner, accessor, mover = bench.owner, bench.accessor, movers(bench)[path]
    writes = path.endswith("write")
    owner.fill(bench.memory, _BYTES, POISON if writes else payload)
    accessor.fill(bench.payload, _BYTES, payload)
    accessor.fill(bench.view, _BYTES, POISON)
    try:
        if writes:
            mover.write(bench.memory, bench.payload, _BYTES)
        else:
            mover.read(bench.view, bench.memory, _BYTES)
        accessor.wait()
    except DriverError as error:
        return error.words
    return None


def _wrong(bench: Bench, path: Path, payload: Pattern) -> int:
    """How many longs are not the payload's, where it should go."""
    if path.endswith("write"):
        return bench.owner.tally(bench.memory, _BYTES, payload).wrong
    return bench.accessor.tally(bench.view, _BYTES, payload).wrong


def _seen(bench: Bench, plan: NegativePlan) -> Seen:
    """Runs the kernel, and looks at what it did."""
    payload = next(payloads(owner_of(Location(*plan.owner)), plan.accessor))
    path: Path = "kernel-write" if plan.way == "write" else "kernel-read"
    answer = _move(bench, path, payload)
    arrived = effect = None
    with suppress(DriverError):  # of a context that is lost nothing can be seen
        wrong = _wrong(bench, path, payload)
        changed = plan.way == "write" and bench.owner.tally(bench.memory, _BYTES, POISON).wrong > 0
        arrived, effect = wrong == 0, changed or wrong < _BYTES // LONG_BYTES
    pageable = _pageable(bench, plan)
    return Seen(flags=bench.flags, answer=answer, arrived=arrived, effect=effect, pageable=pageable)


def _pageable(bench: Bench, plan: NegativePlan) -> bool:
    if plan.owner[0] == LocationType.DEVICE:
        return False
    return bool(bench.driver.device_get_attribute(DeviceAttribute.PAGEABLE_MEMORY_ACCESS, plan.accessor))


_NOTHING: dict[Way, str] = {"write": "changed nothing", "read": "got nothing of the payload"}


def judge(way: Way, outcomes: Sequence[Outcome]) -> tuple[NegativeVerdict, str, Seen | None]:
    """What became of the kernel without access, whose twin comes first."""
    twin = _seen_by(outcomes[0])
    if twin is None or twin.before or twin.answer or not twin.arrived:
        why = "its twin, which differs only in the grant, did not get through"
        return "inconclusive", f"{why}: {_what(outcomes[0], twin)}", None
    if len(outcomes) < 2:
        return "inconclusive", f"only its twin, which differs in the grant, was tried: {outcomes[0].end}", None
    seen = _seen_by(outcomes[1])
    if seen is None:
        hung = outcomes[1].ended == "hung" and READY in outcomes[1].parts
        return ("hang" if hung else "error"), outcomes[1].end, None
    return *_judged(way, seen), seen


def _judged(way: Way, seen: Seen) -> tuple[NegativeVerdict, str]:
    """What the kernel without access came to, where its twin got through."""
    if seen.before:
        return ("inconclusive" if seen.spent else "error"), seen.before
    if seen.effect and seen.pageable:
        return "inconclusive", "it got through, and the device may use any memory of the host"
    if seen.effect:
        if seen.flags:
            return "leaked", f"it got through: access was to be revoked, and still reads {seen.flags:#x}"
        return "leaked", "it got through, while access reads NONE"
    if seen.flags != AccessFlags.NONE:
        return "inconclusive", f"access reads {seen.flags:#x} where it should be none"
    if seen.answer is None:
        return "dropped", f"it {_NOTHING[way]}, and the driver said SUCCESS"
    if seen.answer.code != Code.CUDA_ERROR_ILLEGAL_ADDRESS:
        return "error", f"{seen.answer.call} answered {seen.answer.name}, not an illegal address"
    return "blocked", "it faulted" if seen.effect is None else f"it faulted, and {_NOTHING[way]}"


def _seen_by(outcome: Outcome) -> Seen | None:
    return msgspec.json.decode(outcome.result, type=Seen) if outcome.result else None


def _what(outcome: Outcome, seen: Seen | None) -> str:
    if seen is None:
        return outcome.end
    if seen.answer:
        return f"{seen.answer.call} = {seen.answer.name}"
    return seen.before or "its payload did not arrive"


def copy_paths(owner: Location) -> tuple[Path, ...]:
    """The copies that can be tried, in their order."""
    plain: tuple[Path, ...] = ("copy-write", "copy-read")
    return (*plain, "peer-copy-write", "peer-copy-read") if owner.type == LocationType.DEVICE else plain


class CopiesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All copies without access."""

    source: str
    owner: tuple[int, int]
    accessor: int


def copies(payload: bytes, reports: Reports) -> bytes:
    """CopiesPlan -> an UngrantedCopy a part, as far as it comes. Returns why it comes no further."""
    plan = msgspec.json.decode(payload, type=CopiesPlan)
    place = Location(*plan.owner)
    try:
        bench = _lay_out(plan.source, place, plan.accessor, reports)
        for path in copy_paths(place):
            reports.part(msgspec.json.encode(_copied(bench, path, plan)))
    except MempoolError as error:
        return error.problem.message.encode()
    except DriverError as error:
        return (wanting(error) or f"{error.words.call} = {error.words.name} beside the copy itself").encode()
    return b""


def _copied(bench: Bench, path: Path, plan: CopiesPlan) -> UngrantedCopy:
    payload = next(payloads(owner_of(Location(*plan.owner)), plan.accessor))
    words = _move(bench, path, payload)
    return UngrantedCopy(path=path, arrived=words is None and _wrong(bench, path, payload) == 0, driver=words)
