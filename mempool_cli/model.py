"""Results as frozen values: the same types are the JSON that a user reads and the messages that a host sends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast, get_args

import msgspec

from mempool_cli.errors import DriverWords, Problem
from mempool_cli.exit_status import EXIT_STATUS, MACHINE, OK
from mempool_cli.wording import device_list, place_name

SCHEMA = "mempool/1"

Access = Literal["rw", "r", "none", "unknown"]
Role = Literal["default", "current", "created", "named"]


class Notice(msgspec.Struct, frozen=True):
    """A warning: something a user should know that is no failure. `code` is stable, kebab-case."""

    code: str
    message: str


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One visible device, under the three names by which people know it."""

    ordinal: int
    uuid: str
    pci_bus_id: str
    name: str
    pools_supported: bool


class DeviceDetail(Device, frozen=True, kw_only=True):
    """A device with what it can do for pools.

    `peers`: ordinals whose memory this device can reach; `peers_unknown`: those of which the driver did not say.
    """

    compute_capability: str
    host_pools_supported: bool
    host_numa_pools_supported: bool
    pool_handle_types: int
    host_numa_id: int
    peers: tuple[int, ...]
    peers_unknown: tuple[int, ...] = ()

    @property
    def identity(self) -> Device:
        """What a listing of devices shows."""
        return Device(**{name: getattr(self, name) for name in Device.__struct_fields__})


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool by its name. `location` is spelled as `mempool create` takes it; `owner` is None on host pools."""

    name: str
    roles: tuple[Role, ...]
    location: str
    owner: int | None


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What one device may do with one pool. `device` is None for the host's own cell.

    `access` comes from cuMemPoolGetAccess alone and is None when it was not asked (`error` None: no pool
    support) or not answered (`error` set). `capable` comes from cuDeviceCanAccessPeer or, for host pools, from
    the device's attribute; None when there is no such question (owner, host, not asked) or, with `error`, no
    answer.
    """

    device: int | None
    access: Access | None = None
    flags: int | None = None
    owner: bool = False
    capable: bool | None = None
    error: Problem | None = None

    @property
    def may_access(self) -> bool:
        """It has access, or the driver did not say whether."""
        return self.unread or self.access not in (None, "none")

    @property
    def unread(self) -> bool:
        """The driver was asked what access there is, and did not say."""
        return self.access is None and self.error is not None

    @property
    def contradiction(self) -> bool:
        """Access is granted to a device that cannot reach the pool."""
        return self.capable is False and self.access in ("rw", "r", "unknown")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One pool: a cell for each visible device in the order of ordinals, and the host's own cell."""

    pool: Pool
    cells: tuple[Cell, ...]
    host: Cell


class Result(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What an operation found or did. A result knows its own verdict; how it is laid out is not its business."""

    warnings: tuple[Notice, ...] = ()

    @property
    def problem(self) -> Problem | None:
        """The failure that this result itself amounts to, or None."""
        return None

    @property
    def changed(self) -> bool:
        """Whether something is other than before: not after a dry run, nor where nothing had to change."""
        return False


def unreadable(rows: Iterable[Row]) -> Problem | None:
    """The failure that cells amount to which the driver refused to answer for."""
    cells = [cell for row in rows for cell in (*row.cells, row.host)]
    failed = [cell for cell in cells if cell.error]
    if not failed:
        return None
    first = failed[0].error
    return Problem(
        code="unreadable-cells",
        message=f"{len(failed)} of {len(cells)} cells could not be read",
        driver=first.driver if first else None,
    )


class DeviceList(Result, frozen=True, kw_only=True):
    """The visible devices."""

    devices: tuple[DeviceDetail, ...]

    @property
    def problem(self) -> Problem | None:
        """`unreadable-cells` when the driver did not say of some pairs whether one reaches the other."""
        unknown = sum(len(device.peers_unknown) for device in self.devices)
        if not unknown:
            return None
        pairs = len(self.devices) * (len(self.devices) - 1)
        return Problem(code="unreadable-cells", message=f"the driver did not answer for {unknown} of {pairs} pairs")


class PoolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `mempool list`. Bytes are None where the driver does not say."""

    pool: Pool
    used_bytes: int | None
    reserved_bytes: int | None
    release_threshold: int | None
    max_size: int | None
    error: Problem | None = None


class PoolList(Result, frozen=True, kw_only=True):
    """Every pool that the host can name."""

    pools: tuple[PoolSummary, ...]

    @property
    def problem(self) -> Problem | None:
        """`unreadable-attributes` when the driver refused to answer for at least one pool."""
        failed = [summary.error for summary in self.pools if summary.error]
        if not failed:
            return None
        message = f"the attributes of {len(failed)} of {len(self.pools)} pools could not be read"
        return Problem(code="unreadable-attributes", message=message, driver=failed[0].driver)


class Attribute(msgspec.Struct, frozen=True):
    """A pool attribute by its driver name in snake case; sizes in bytes, reuse policies 0 or 1.

    `value` is None, and `error` says why, when the driver did not answer.
    """

    name: str
    value: int | None
    error: Problem | None = None


class PoolDetail(Result, frozen=True, kw_only=True):
    """One pool with its attributes, as the driver answers them, and who may access it.

    `made_by`: the driver made the default pools, mempool those that it created, and only these can it destroy.
    """

    pool: Pool
    made_by: Literal["driver", "mempool", "program"]
    devices: tuple[Device, ...]
    attributes: tuple[Attribute, ...]
    max_size: int | None
    row: Row

    @property
    def problem(self) -> Problem | None:
        """`unreadable-cells` or `unreadable-attributes` when the driver refused to answer for at least one."""
        failed = [attribute.error for attribute in self.attributes if attribute.error]
        message = f"{len(failed)} of {len(self.attributes)} attributes could not be read"
        unread = Problem(code="unreadable-attributes", message=message, driver=failed[0].driver) if failed else None
        return unreadable((self.row,)) or unread


class AccessMatrix(Result, frozen=True, kw_only=True):
    """The permissions that the driver reports: a row a pool, a cell a device."""

    devices: tuple[Device, ...]
    rows: tuple[Row, ...]

    @property
    def problem(self) -> Problem | None:
        """`unreadable-cells` when the driver refused to answer for at least one cell."""
        return unreadable(self.rows)


class AccessChange(Result, frozen=True, kw_only=True):
    """What a grant or revoke did, from the driver's read-back. Device lists are ascending ordinals.

    `granted`, `revoked`: access that the driver now reports and did not before (with `dry_run`: what would
    change). `unchanged`: asked for and already so. `owner_skipped`: the owner was named and left out.
    `set_access_calls`: 0 or 1. `unknown`:
    the call was about them, and the driver does not answer what access they have now. `cells`: the whole row after
    the change.
    """

    pool: Pool
    granted: tuple[int, ...] = ()
    revoked: tuple[int, ...] = ()
    unchanged: tuple[int, ...] = ()
    owner_skipped: bool = False
    set_access_calls: int = 0
    dry_run: bool = False
    unknown: tuple[int, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the driver reports other access than before, or may have changed it and does not answer."""
        return bool(self.granted or self.revoked or self.unknown) and not self.dry_run


class PoolCreated(Result, frozen=True, kw_only=True):
    """A new pool. `inherited`: devices that had access which nobody asked for; it was cleared.

    `cells`: the whole row after creation, clearing and granting.
    """

    pool: Pool
    max_size: int
    release_threshold: int
    inherited: tuple[int, ...] = ()
    granted: tuple[int, ...] = ()
    set_access_calls: int = 0
    cells: tuple[Cell, ...] = ()

    @property
    def changed(self) -> bool:
        """Always: there is a pool more."""
        return True


class CurrentPool(Result, frozen=True, kw_only=True):
    """Which pool a device allocates from now, and which it was. `device` is an ordinal."""

    device: int
    pool: Pool
    previous: Pool

    @property
    def changed(self) -> bool:
        """Whether it was another pool before."""
        return self.previous.name != self.pool.name


class PoolDestroyed(msgspec.Struct, frozen=True, kw_only=True):
    """One destroyed pool. `cleared`: devices whose access was taken away first; `not_cleared`: would not clear.

    `left_granted`: devices that still had access at destroy because cleanup was declined. `unknown`: devices of
    which the driver did not say what access they had.
    """

    pool: Pool
    cleared: tuple[int, ...] = ()
    not_cleared: tuple[int, ...] = ()
    left_granted: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    used_bytes: int = 0


class PoolsDestroyed(Result, frozen=True, kw_only=True):
    """The pools that were destroyed, in the order asked."""

    destroyed: tuple[PoolDestroyed, ...]

    @property
    def problem(self) -> Problem | None:
        """`not-cleared` when access of a destroyed pool would not clear: its next holder may inherit it.

        `unreadable-cells` when the driver did not say whether it did.
        """
        stuck = [f"{each.pool.name} ({device_list(each.not_cleared)})" for each in self.destroyed if each.not_cleared]
        unread = [f"{each.pool.name} ({device_list(each.unknown)})" for each in self.destroyed if each.unknown]
        hint = "a pool created later may get the same handle and inherit this access; `mempool create` reports it"
        if stuck:
            message = f"destroyed, but access would not clear first: {', '.join(stuck)}"
            return Problem(code="not-cleared", message=message, hint=hint)
        if unread:
            message = f"destroyed, but the driver did not say who had access: {', '.join(unread)}"
            return Problem(code="unreadable-cells", message=message, hint=hint)
        return None

    @property
    def changed(self) -> bool:
        """Whether any was."""
        return bool(self.destroyed)


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A running host. `sim` is its SPEC, None on hardware; times are ISO 8601 in UTC; `idle_timeout` in seconds.

    `expires` is None and `idle_timeout` 0 for a host that never ends by itself. `pools` are the names it created.
    `answering` is False when this is what it wrote on disk alone: when it ends is not known then, and `expires` None.
    """

    kind: Literal["session", "program"]
    name: str
    pid: int
    version: str
    sim: str | None
    started: str
    expires: str | None
    idle_timeout: int
    pools: tuple[str, ...]
    answering: bool = True


class SessionList(Result, frozen=True, kw_only=True):
    """Every running host of this user in one name space: simulated or hardware."""

    sessions: tuple[Session, ...]


class SessionStatus(Result, frozen=True, kw_only=True):
    """One running host; `started_now` when this command started it."""

    session: Session
    started_now: bool = False


class SessionStopped(Result, frozen=True, kw_only=True):
    """A host that has ended; a program goes on without its agent. `killed`: by SIGKILL, so that its pools stayed.

    `not_destroyed`: the pools that the driver would not let it destroy; they ended with its process.
    """

    session: Session
    killed: bool = False
    not_destroyed: tuple[str, ...] = ()

    @property
    def problem(self) -> Problem | None:
        """`driver-refused` when a pool could not be destroyed."""
        names = self.not_destroyed
        if not names:
            return None
        what, they = (f"pool {names[0]}", "it") if len(names) == 1 else (f"pools {', '.join(names)}", "they")
        fate = f"{they} ended with the process" if self.session.kind == "session" else "the program still has them"
        message = f"{what} could not be destroyed; {fate}"
        return Problem(code="driver-refused", message=message)

    @property
    def changed(self) -> bool:
        """Always: it is gone."""
        return True


Verdict = Literal["affected", "not-affected", "inconclusive", "present", "absent", "failed"]


class Counted(msgspec.Struct, frozen=True):
    """A figure of a trial: `words` say what was counted, or which code was answered."""

    name: str
    words: str
    count: int


class ReproTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One process that exercised a bug. `verdict` is "failed" when it did not come to its end.

    `cleared`: the codes that its clearing calls answered. `ended`: how the process did; `signal` and `last_call` when
    something killed it; `remains`: the pid of one that SIGKILL does not end.
    """

    arm: str
    history: str
    repeat: int
    verdict: Verdict
    why: str
    counted: tuple[Counted, ...] = ()
    cleared: tuple[Counted, ...] = ()
    ended: Literal["returned", "signal", "exit", "hung"] = "returned"
    signal: str | None = None
    last_call: str | None = None
    remains: int | None = None


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict about one bug on one kind of pool: `variant` is where the pools are, on a device or the host.

    `owner` is None on the host, and both are None where nothing could be run: `why` says so. `enforced`: of a driver
    that is affected, whether a kernel without a right to it is kept out of the memory all the same.
    """

    bug: str
    kind: Literal["bug", "trap"]
    title: str
    variant: Literal["device", "host", "unreachable"]
    owner: int | None
    accessor: int | None
    verdict: Verdict
    why: str
    enforced: Literal["yes", "no", "untested"] | None = None
    trials: tuple[ReproTrial, ...] = ()


class ReproReport(Result, frozen=True, kw_only=True):
    """What was reproduced, or ruled out. Of several verdicts the worst counts: affected, failed, inconclusive."""

    reproductions: tuple[Reproduction, ...]

    @property
    def problem(self) -> Problem | None:
        """`affected`, `trial-failed` or `inconclusive`; None when all is clean; a trap that was seen is."""
        seen = {one.bug for one in self.reproductions if one.verdict == "present"}
        moot = [one for one in self.reproductions if one.verdict == "inconclusive" and one.bug in seen]
        found = {one.verdict: one for one in reversed(self.reproductions) if one not in moot}
        for verdict, code in (("affected", "affected"), ("failed", "trial-failed"), ("inconclusive", "inconclusive")):
            one = found.get(cast("Verdict", verdict))
            if one:
                hand_over = f"`mempool repro {one.bug} --report FILE --emit-c FILE` writes what a driver team needs"
                hint = hand_over if verdict == "affected" else None
                return Problem(code=code, message=f"{one.bug}, {one.variant} pools: {one.why}", hint=hint)
        return None


class BugSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `mempool repro --list`."""

    id: str
    kind: Literal["bug", "trap"]
    title: str
    needs: tuple[str, ...]
    sources: tuple[str, ...]


class BugList(Result, frozen=True, kw_only=True):
    """What `mempool repro` can exercise."""

    bugs: tuple[BugSummary, ...]


Order = Literal["grant-first", "allocate-first"]
Path = Literal[
    "kernel-write", "kernel-read", "atomic-add", "peer-copy-write", "peer-copy-read", "copy-write", "copy-read"
]
PathVerdict = Literal[
    "mirror", "corrupt", "dropped", "faulted", "hang", "refused", "error", "inconclusive", "ok", "skipped"
]
NegativeVerdict = Literal["leaked", "dropped", "hang", "error", "inconclusive", "blocked"]
PairVerdict = Literal[
    "leaked", "mirror", "corrupt", "dropped", "faulted", "hang", "refused", "error", "inconclusive", "ok", "skipped"
]
DamageKind = Literal["zeros", "sentinel", "other"]

WORST_FIRST: tuple[PairVerdict, ...] = get_args(PairVerdict)
_BAD = ("leaked", "mirror", "corrupt", "dropped", "faulted", "hang", "refused")
_UNCLEAR = ("error", "inconclusive")


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """What was wrong in memory, in longs of 8 bytes. `first`: the offset in bytes of the first wrong one.

    `kind`: all wrong ones are zeros, all are still the sentinel that was there before, or anything else.
    """

    first: int
    wrong: int
    kind: DamageKind


class PathResult(msgspec.Struct, frozen=True, kw_only=True):
    """One way of getting at the memory. `size` in bytes and `repeat`, from 1: the last that was tried.

    `bandwidth`: bytes a second of the largest copy, None where it is not measured. `remains`: the pid of a process
    that SIGKILL does not end.
    """

    order: Order
    path: Path
    verdict: PathVerdict
    why: str
    size: int | None = None
    repeat: int | None = None
    damage: Damage | None = None
    driver: DriverWords | None = None
    bandwidth: float | None = None
    remains: int | None = None


class NegativeResult(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel without access that tried: never granted, or granted, used and revoked."""

    variant: Literal["never-granted", "revoked"]
    access: Literal["write", "read"]
    verdict: NegativeVerdict
    why: str
    driver: DriverWords | None = None
    remains: int | None = None


class UngrantedCopy(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy without access came to. It is recorded and never judged.

    `arrived` is None where that is not known, for the reason `why`: the process came to no end, or to no copy.
    """

    path: Path
    arrived: bool | None
    driver: DriverWords | None = None
    why: str | None = None


class PairResult(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a device can use memory of a pool on the owner, in three layers: capability, permission, data.

    `owner` is None on the host. `access`: what the driver reads after the grant, the least of both orders; None where
    none was made. `native_atomics` is promised by the driver. `negatives` is empty where they were not tested.
    `remains`: the pid of a process that SIGKILL does not end.
    """

    owner: int | None
    accessor: int
    location: str
    capable: bool | None
    verdict: PairVerdict
    why: str
    access: Access | None = None
    native_atomics: bool | None = None
    paths: tuple[PathResult, ...] = ()
    negatives: tuple[NegativeResult, ...] = ()
    ungranted_copies: tuple[UngrantedCopy, ...] = ()
    remains: int | None = None

    @property
    def kept_out(self) -> bool:
        """Whether every kernel without access got nothing done; not all were tried where a process remains."""
        return not self.remains and all(each.verdict in ("blocked", "dropped") for each in self.negatives)

    @property
    def name(self) -> str:
        """`device 5 with memory of device 2`."""
        return f"device {self.accessor} with memory of {place_name(self.owner, self.location)}"


class VerifyReport(Result, frozen=True, kw_only=True):
    """Ordered pairs, as far as they were tried: all of the `planned` ones when nothing interrupted it."""

    devices: tuple[Device, ...]
    sizes: tuple[int, ...]
    repeat: int
    faults_allowed: bool
    planned: int
    pairs: tuple[PairResult, ...]

    @property
    def problem(self) -> Problem | None:
        """`data-path` for a pair that does not work, else `inconclusive` where not all is known; None: all do."""
        bad = [pair for pair in self.pairs if pair.verdict in _BAD]
        unclear = [pair for pair in self.pairs if pair.verdict in _UNCLEAR]
        tried = [pair for pair in self.pairs if pair.verdict != "skipped"]
        if bad:
            return _told("data-path", bad, len(tried), "do not work")
        if unclear:
            return _told("inconclusive", unclear, len(tried), "could not be judged")
        if len(self.pairs) < self.planned:
            return Problem(code="inconclusive", message=f"{len(self.pairs)} of {self.planned} pairs are known so far")
        if not tried:
            why = self.pairs[0].why if self.pairs else "there is no pair of devices"
            hint = "`mempool verify --host` tries pools in host memory" if not self.pairs else None
            return Problem(code="inconclusive", message=f"nothing was tested: {why}", hint=hint)
        return None


def _told(code: str, pairs: Sequence[PairResult], of: int, fate: str) -> Problem:
    first = min(pairs, key=lambda pair: WORST_FIRST.index(pair.verdict))
    return Problem(code=code, message=f"{len(pairs)} of {of} pairs {fate}: {first.name}: {first.verdict}")


CheckOutcome = Literal["passed", "failed", "error", "skipped"]


class CheckCase(msgspec.Struct, frozen=True, kw_only=True):
    """One device or pair in a check. `expected`: a skip that the policy wants, which is no gap.

    `seconds`: how long it took; None where it was not measured by itself.
    """

    name: str
    outcome: CheckOutcome
    why: str
    expected: bool = False
    seconds: float | None = None
    driver: DriverWords | None = None


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """A check. `of_pairs`: it is about devices that use each other's memory.

    `outcome`: the worst of its cases, of which one that was skipped counts less than one that passed.
    """

    id: str
    title: str
    of_pairs: bool
    outcome: CheckOutcome
    seconds: float
    cases: tuple[CheckCase, ...]

    @property
    def gaps(self) -> tuple[CheckCase, ...]:
        """What was skipped and should not have been."""
        return tuple(case for case in self.cases if case.outcome == "skipped" and not case.expected)


class CheckReport(Result, frozen=True, kw_only=True):
    """The checks that were run, in their order. `policy`: the file that says how the machine should be."""

    devices: tuple[Device, ...]
    policy: str | None
    skips_allowed: bool
    checks: tuple[CheckResult, ...]

    @property
    def problem(self) -> Problem | None:
        """`check-failed`, else `check-error`, else `inconclusive`: a pair check has a gap, or nothing passed."""
        for outcome, code in (("failed", "check-failed"), ("error", "check-error")):
            bad = [check for check in self.checks if check.outcome == outcome]
            if bad:
                first = next(case for case in bad[0].cases if case.outcome == outcome)
                fate = "failed" if outcome == "failed" else "ended in an error"
                message = f"{len(bad)} of {len(self.checks)} checks {fate}: {bad[0].id}: {first.name}: {first.why}"
                hint = "`mempool doctor` says why" if first.name in ("cuInit", "the driver") else None
                return Problem(code=code, message=message, hint=hint)
        gaps = [(check, case) for check in self.checks if check.of_pairs for case in check.gaps]
        if gaps and not self.skips_allowed:
            check, case = gaps[0]
            cases = f"{len(gaps)} case{'s' if len(gaps) > 1 else ''}"
            message = f"{cases} of pair checks could not be run: {check.id}: {case.name}: {case.why}"
            hint = "--allow-skips, or a policy that says what this machine should be (`mempool check --init`)"
            return Problem(code="inconclusive", message=message, hint=hint)
        if not any(case.outcome == "passed" for check in self.checks for case in check.cases):
            return Problem(code="inconclusive", message="nothing was tested")
        return None


class CheckSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `mempool check --list`."""

    id: str
    title: str
    of_pairs: bool


class CheckList(Result, frozen=True, kw_only=True):
    """What `mempool check` can run."""

    checks: tuple[CheckSummary, ...]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that `mempool doctor` looked at. `evidence`: what was read, and where; `hint`: what to try.

    Of a failure `code` is the error that commands end with, None when they may not, and `driver` the driver's words.
    """

    topic: str
    level: Literal["ok", "warn", "fail"]
    text: str
    evidence: tuple[str, ...] = ()
    hint: str | None = None
    code: str | None = None
    driver: DriverWords | None = None


class Diagnosis(Result, frozen=True, kw_only=True):
    """Why this machine cannot, or that it can: findings in the order in which they build on each other."""

    findings: tuple[Finding, ...]

    @property
    def problem(self) -> Problem | None:
        """The first failure, by its own code where that means that the machine cannot, else as `machine-unfit`."""
        first = next((finding for finding in self.findings if finding.level == "fail"), None)
        if first is None:
            return None
        code = first.code if first.code and EXIT_STATUS.get(first.code) == MACHINE else "machine-unfit"
        return Problem(code=code, message=f"{first.topic}: {first.text}", hint=first.hint, driver=first.driver)


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A value that differs; None where it was not known, or is not."""

    name: str
    old: str | None
    new: str | None


ChangeKind = Literal[
    "cuda",
    "driver",
    "machine",
    "device-removed",
    "device-added",
    "device-moved",
    "device-changed",
    "capability",
    "access",
]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is other than before. `device` is a UUID, and where there is an `owner` that of the accessor.

    `both_ways`: the same is true with the two devices exchanged.
    """

    kind: ChangeKind
    device: str | None = None
    owner: str | None = None
    both_ways: bool = False
    values: tuple[ValueChange, ...] = ()


class Difference(Result, frozen=True, kw_only=True):
    """What changed from one snapshot to another; `old` and `new` name their files, `new` is None for the live machine.

    `devices`: all of both, by their new ordinals where they have one; `devices_compared`: False where CUDA failed.
    """

    old: str
    new: str | None
    devices: tuple[Device, ...]
    devices_compared: bool
    changes: tuple[Change, ...]

    @property
    def problem(self) -> Problem | None:
        """`different`, or `inconclusive` where no device could be compared, unless nothing changed."""
        count = len(self.changes)
        if count:
            return Problem(code="different", message=f"{count} change{'s' if count > 1 else ''} since {self.old}")
        if not self.devices_compared:
            message = "CUDA does not start in either: no device was compared"
            hint = None if self.new else "`mempool doctor` says why"
            return Problem(code="inconclusive", message=message, hint=hint)
        return None


AnyResult = (
    DeviceList
    | PoolList
    | PoolDetail
    | AccessMatrix
    | AccessChange
    | PoolCreated
    | CurrentPool
    | PoolsDestroyed
    | SessionList
    | SessionStatus
    | SessionStopped
    | ReproReport
    | BugList
    | VerifyReport
    | CheckReport
    | CheckList
    | Diagnosis
    | Difference
)


class Libcuda(msgspec.Struct, frozen=True):
    """The driver library that this process loaded."""

    path: str
    version: str | None


class KernelModule(msgspec.Struct, frozen=True):
    """The kernel side of the driver: `flavour` is "open" or "proprietary"."""

    version: str
    flavour: str | None


class DriverInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which driver answered. `sim` is the simulated machine's SPEC, None on hardware."""

    kind: Literal["sim", "cuda"]
    cuda_version: str
    bindings: str | None = None
    sim: str | None = None
    libcuda: Libcuda | None = None
    kernel_module: KernelModule | None = None


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The process that holds the pools. `expires`: when an idle session ends, ISO 8601 in UTC."""

    kind: Literal["local", "session", "program"]
    pid: int
    name: str | None = None
    expires: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """All that a runner says about one request: who answered, where, and the result or the failure or both."""

    driver: DriverInfo | None = None
    where: Where | None = None
    result: AnyResult | None = None
    failure: Problem | None = None

    @property
    def problem(self) -> Problem | None:
        """The failure: the one raised, else the one that the result amounts to."""
        return self.failure or (self.result.problem if self.result else None)

    @property
    def changed(self) -> bool:
        """Whether something is other than before."""
        return self.result is not None and self.result.changed

    @property
    def exit(self) -> int:
        """The exit status of the command."""
        return self.problem.exit if self.problem else OK


class Event(msgspec.Struct, frozen=True):
    """Something that happens while a request runs: a driver call (`trace`) or a state (`status`)."""

    kind: Literal["trace", "status"]
    text: str


def envelope(command: str, answer: Answer) -> dict[str, Any]:
    """The one JSON object that `--format json` prints, as builtin values."""
    data: dict[str, Any] | None = None
    warnings: list[Any] = []
    if answer.result is not None:
        data = msgspec.to_builtins(answer.result)
        del data["type"]
        warnings = data.pop("warnings")
    problem = answer.problem
    return {
        "schema": SCHEMA,
        "command": command,
        "ok": problem is None,
        "exit": answer.exit,
        "driver": msgspec.to_builtins(answer.driver),
        "where": msgspec.to_builtins(answer.where),
        "data": data,
        "warnings": warnings,
        "error": msgspec.to_builtins(problem),
    }
