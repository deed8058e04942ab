"""Pools by name: default and current ones that the driver has, and those that this process created."""

from __future__ import annotations

import contextlib
import difflib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from mempool_cli import access
from mempool_cli.devices import NO_POOLS, is_device_word, no_pool_support, resolve_device
from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import (
    HOST_LOCATION,
    AccessEntry,
    AccessFlags,
    Driver,
    Location,
    PoolAttribute,
    PoolProperties,
    device_location,
)
from mempool_cli.errors import DriverError, MempoolError, Problem
from mempool_cli.locations import describe_location, owner_of, parse_location, spell_location
from mempool_cli.model import (
    Attribute,
    Cell,
    CurrentPool,
    Device,
    Notice,
    Pool,
    PoolCreated,
    PoolDestroyed,
    PoolDetail,
    PoolSummary,
    Role,
    Row,
    unreadable,
)
from mempool_cli.names import NAME
from mempool_cli.probe import Target, capability_cells, current_target, default_target, device_target, read_row
from mempool_cli.requests import Create
from mempool_cli.wording import device_list

RESERVED = ("host", "numa", "all", "peers", "default", "current")
_KINDS = ("default", "current")
_NAMED = 8
_POOL = "a pool is a name that `create` gave it, a device (0: its default pool), default:0 or current:0"
_UUID_LIKE = ("GPU-", "MIG-")
_AUTOMATIC = "pool-{}"
_LARGEST = 1 << 62


class Created(NamedTuple):
    """What a host keeps of a pool it created: never who has access to it."""

    handle: int
    location: Location
    max_size: int
    release_threshold: int


def check_name(name: str) -> str:
    """The name, if a pool can have it; MempoolError `bad-name` otherwise."""
    if NAME.fullmatch(name) and name not in RESERVED and not name.upper().startswith(_UUID_LIKE):
        return name
    raise MempoolError(
        "bad-name",
        f"{name!r} is no name for a pool",
        hint="a letter or _, then up to 63 letters, digits, '_', '.' or '-';"
        f" not {', '.join(RESERVED)}, GPU-..., MIG-...",
    )


class NamedPool(Protocol):
    """A pool that the process's own program made and named. `place`: where, as `mempool create` spells it."""

    @property
    def place(self) -> str:
        """`0`, `host` or `numa:0`."""

    def handle(self) -> int:
        """The handle at this moment; 0 when the pool is gone. No driver call."""


class Pools:
    """The pools of this process that users can name. Handles stay inside. `named`: the program's own, by name."""

    def __init__(self, named: Callable[[], Mapping[str, NamedPool]] = dict) -> None:
        self._named = named
        self._created: dict[str, Created] = {}
        self._given: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """The created pools that are alive, in the order of creation."""
        return tuple(self._created)

    # --- naming ---

    def resolve(self, driver: Driver, word: str, devices: Sequence[Device]) -> Target:
        """The pool that `word` names: a name, a device's default pool, `default:DEV` or `current:DEV`.

        MempoolError `unknown-pool`, `unknown-device`, or `no-pool-support` when the device has no pools.
        """
        if word in self._created:
            return self._target(driver, word)
        named = self._named().get(word)
        if named:
            return _reached(_own_target(driver, word, named, devices), word)
        kind, colon, device_word = word.partition(":")
        if kind not in _KINDS or not colon:
            if not is_device_word(word):
                raise self._unknown(word)
            kind, device_word = "default", word
        device = devices[resolve_device(device_word, devices)]
        if not device.pools_supported:
            raise no_pool_support(device)
        target = self._current(driver, device, devices) if kind == "current" else default_target(driver, device)
        return _reached(target, word)

    def _current(self, driver: Driver, device: Device, devices: Sequence[Device]) -> Target:
        """The current pool under the name that we know: created, named, default, or `current:DEV`. DriverError."""
        handle = driver.device_get_mem_pool(device.ordinal)
        for name, created in self._created.items():
            if created.handle == handle:
                return self._target(driver, name)
        for name, pool in self._named().items():
            if pool.handle() == handle:
                return _own_target(driver, name, pool, devices)
        if handle == driver.device_get_default_mem_pool(device.ordinal):
            return device_target(device, handle, "default", "current")
        return device_target(device, handle, "current")

    def _target(self, driver: Driver, name: str) -> Target:
        created = self._created[name]
        return _placed_target(driver, name, "created", created.handle, created.location)

    def _unknown(self, word: str) -> MempoolError:
        if word in _KINDS:
            return MempoolError("unknown-pool", f"{word} of which device?", hint=f"{word}:0 is that of device 0")
        own = list(self._named())
        known = f"created here: {_listed(list(self._created))}" + (f"; named here: {_listed(own)}" if own else "")
        close = difflib.get_close_matches(word, [*self._created, *own], n=1)
        return MempoolError(
            "unknown-pool", f"there is no pool {word!r}; {known}", hint=f"did you mean {close[0]}?" if close else _POOL
        )

    def every(self, driver: Driver, devices: Sequence[Device]) -> list[Target]:
        """Default pools, then created pools, then those that the program named, then current pools that are neither."""
        defaults = [default_target(driver, device) for device in devices]
        created = [self._target(driver, name) for name in self._created]
        named = [_own_target(driver, name, pool, devices) for name, pool in self._named().items()]
        known = {target.handle for target in (*defaults, *created, *named)}
        currents = [current_target(driver, device) for device in devices]
        return [*defaults, *created, *named, *(each for each in currents if each and each.handle not in known)]

    # --- reading ---

    def summary(self, driver: Driver, target: Target) -> PoolSummary:
        """One line of a listing. Driver calls: 3; None, and the error, where the driver does not answer."""
        created = self._created.get(target.pool.name)
        wanted = (PoolAttribute.USED_MEM_CURRENT, PoolAttribute.RESERVED_MEM_CURRENT, PoolAttribute.RELEASE_THRESHOLD)
        read = _attributes(driver, target, wanted) if target.handle else [Attribute("", None)] * len(wanted)
        used, reserved, threshold = (attribute.value for attribute in read)
        return PoolSummary(
            pool=target.pool,
            used_bytes=used,
            reserved_bytes=reserved,
            release_threshold=threshold,
            max_size=created.max_size if created else None,
            error=next((attribute.error for attribute in read if attribute.error), target.error),
        )

    def detail(self, driver: Driver, target: Target, devices: Sequence[Device]) -> PoolDetail:
        """All about one pool. Driver calls: 8 attributes, and a row."""
        created = self._created.get(target.pool.name)
        return PoolDetail(
            pool=target.pool,
            devices=tuple(devices),
            attributes=tuple(_attributes(driver, target, tuple(PoolAttribute))),
            max_size=created.max_size if created else None,
            made_by="mempool" if created else "driver" if "default" in target.pool.roles else "program",
            row=read_row(driver, target, devices),
        )

    # --- changing ---

    def create(self, driver: Driver, request: Create, devices: Sequence[Device]) -> PoolCreated:
        """Creates a pool, takes away access that nobody asked for, and grants what was, in one SetAccess.

        Nothing remains when it fails. MempoolError `bad-name`, `name-taken`, `unknown-device`,
        `no-pool-support`, `not-peer-capable`, `out-of-memory`, `driver-refused`, `not-applied`,
        `unreadable-cells`. Driver calls: 1 a device for capability, create, at most 1 attribute, a row, at
        most 1 SetAccess with another row.
        """
        self._check_free(request.name)
        _check_size(request.max_size)
        location = parse_location(request.location, devices)
        granted = _placeable(driver, location, request.to, devices)
        handle = self._new_handle(driver, PoolProperties(location, request.max_size))
        name = request.name or self._automatic_name()
        self._given.add(name)
        self._created[name] = Created(handle, location, request.max_size, request.release_threshold)
        try:
            if request.release_threshold:
                driver.mem_pool_set_attribute(handle, PoolAttribute.RELEASE_THRESHOLD, request.release_threshold)
            return self._granted(driver, name, devices, granted)
        except (MempoolError, DriverError) as error:
            raise _half_made(name, error, gone=self._discard(driver, name, devices)) from error
        except BaseException:
            self._discard(driver, name, devices)
            raise

    def _discard(self, driver: Driver, name: str, devices: Sequence[Device]) -> bool:
        """Takes a half-made pool away, if the driver lets it go; whether it did."""
        with contextlib.suppress(DriverError, MempoolError):
            self.destroy(driver, self._target(driver, name), devices, cleanup=True)
        return name not in self._created

    def give_up(self, driver: Driver) -> None:
        """Destroys what is left without asking anything before. The pools that the driver keeps stay in `names`."""
        for name, created in list(self._created.items()):
            with contextlib.suppress(DriverError):
                driver.mem_pool_destroy(created.handle)
                del self._created[name]

    def _check_free(self, name: str | None) -> None:
        if name is None:
            return
        check_name(name)
        if name in self._created or name in self._named():
            raise MempoolError("name-taken", f"there is a pool {name!r} already", hint="`mempool list` shows it")

    def _automatic_name(self) -> str:
        """Never one that was given before, so that a name in a log means one pool."""
        numbered = map(_AUTOMATIC.format, itertools.count(1))
        return next(name for name in numbered if name not in self._given)

    def _new_handle(self, driver: Driver, properties: PoolProperties) -> int:
        try:
            return driver.mem_pool_create(properties)
        except DriverError as error:
            raise self._not_created(error, describe_location(properties.location)) from error

    def _not_created(self, error: DriverError, place: str) -> MempoolError:
        code, message = "driver-refused", f"the driver cannot create a pool on {place}"
        hint = "/sys/devices/system/node shows the NUMA nodes" if place.startswith("numa") else None
        if error.words.code == Code.CUDA_ERROR_OUT_OF_MEMORY:
            code = "out-of-memory"
            message = f"no room for another pool on {place}; pools alive here: {len(self._created)}"
            hint = "every pool reserves address space for its maximum size: give a smaller --max-size"
        elif error.words.code == Code.CUDA_ERROR_NOT_SUPPORTED:
            code, message, hint = "no-pool-support", f"there is no support for memory pools on {place}", NO_POOLS
        return MempoolError(code, message, hint=hint, driver=error.words)

    def _granted(self, driver: Driver, name: str, devices: Sequence[Device], to: Sequence[int]) -> PoolCreated:
        created = self._created[name]
        target = self._target(driver, name)
        fresh = read_row(driver, target, devices)
        unread = unreadable((fresh,))
        if unread:
            raise MempoolError(unread.code, f"pool {name}: {unread.message}", driver=unread.driver)
        holders = _holders(fresh)
        inherited = tuple(device for device in holders if device not in to)
        plan = access.plan_grant(fresh, to, only=bool(inherited))
        change = access.change(driver, target, fresh, plan, devices)
        return PoolCreated(
            pool=target.pool,
            max_size=created.max_size,
            release_threshold=created.release_threshold,
            inherited=inherited,
            granted=tuple(sorted({*change.granted, *change.unchanged})),
            set_access_calls=change.set_access_calls,
            cells=change.cells,
            warnings=(*_inherited(name, holders, inherited), *change.warnings),
        )

    def set_current(self, driver: Driver, target: Target, devices: Sequence[Device]) -> CurrentPool:
        """Makes it the pool that its device allocates from, and reads that back.

        MempoolError `host-pool` when it is on no device, `not-applied` or `driver-refused` when the driver has
        another one then, or does not say. DriverError when it refuses before or at the change.
        """
        owner = target.pool.owner
        if owner is None:
            raise MempoolError(
                "host-pool",
                f"pool {target.pool.name} is on {target.pool.location}: a device's current pool is one on that device",
            )
        previous = self._current(driver, devices[owner], devices).pool
        driver.device_set_mem_pool(owner, target.handle)
        try:
            now = self._current(driver, devices[owner], devices)
        except DriverError as error:
            message = f"the driver accepted pool {target.pool.name}, and does not answer which pool is current now"
            raise MempoolError("driver-refused", message, driver=error.words) from error
        if now.handle != target.handle:
            raise MempoolError(
                "not-applied",
                f"the driver accepted pool {target.pool.name}, but {now.pool.name} is current on device {owner}",
            )
        return CurrentPool(device=owner, pool=now.pool, previous=previous)

    def check_destroyable(self, target: Target) -> None:
        """MempoolError when it is not one of ours: `default-pool`, or `program-pool` for a program's own."""
        if "default" in target.pool.roles:
            raise MempoolError("default-pool", f"pool {target.pool.name} is a default pool, which cannot be destroyed")
        if target.pool.name not in self._created:
            raise MempoolError(
                "program-pool", f"pool {target.pool.name} is the program's own, which only the program may destroy"
            )

    def destroy(self, driver: Driver, target: Target, devices: Sequence[Device], *, cleanup: bool) -> PoolDestroyed:
        """Clears peer access (unless told not to), then destroys. MempoolError when destroy itself is refused.

        Clearing first keeps a recycled handle from passing access on to its next pool (nvbug 5698116).
        Driver calls: a row, SetAccess 1 (and 1 a device when refused) and another row, 1 attribute, destroy.
        """
        before = read_row(driver, target, devices)
        after = _cleared(driver, target, before, devices) if cleanup else before
        used = _attributes(driver, target, (PoolAttribute.USED_MEM_CURRENT,))[0].value
        cleared = tuple(device for device in _holders(before) if device not in {*_holders(after), *_unread(after)})
        try:
            driver.mem_pool_destroy(target.handle)
        except DriverError as error:
            lost = f"{device_list(cleared)} lost access to it all the same" if cleared else None
            raise MempoolError(
                "driver-refused", f"pool {target.pool.name} was not destroyed", hint=lost, driver=error.words
            ) from error
        del self._created[target.pool.name]
        return PoolDestroyed(
            pool=target.pool,
            cleared=cleared,
            not_cleared=_holders(after) if cleanup else (),
            left_granted=() if cleanup else _holders(after),
            unknown=_unread(after),
            used_bytes=used or 0,
        )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return (", ".join(names[:_NAMED]) or "none") + (f" and {more} more" if more > 0 else "")


def _reached(target: Target, word: str) -> Target:
    """The target; MempoolError when it could not be had."""
    problem = target.error
    if problem:
        raise MempoolError(problem.code, f"pool {word} cannot be reached: {problem.message}", driver=problem.driver)
    return target


def _own_target(driver: Driver, name: str, pool: NamedPool, devices: Sequence[Device]) -> Target:
    """A pool that the program named, as it is at this moment."""
    try:
        return _placed_target(driver, name, "named", pool.handle(), parse_location(pool.place, devices))
    except MempoolError as error:
        nowhere = Pool(name=name, roles=("named",), location=pool.place, owner=None)
        return Target(nowhere, 0, HOST_LOCATION, error.problem)


def _placed_target(driver: Driver, name: str, role: Role, handle: int, location: Location) -> Target:
    owner = owner_of(location)
    current = False
    with contextlib.suppress(DriverError):  # a role is not worth losing the pool for
        current = owner is not None and driver.device_get_mem_pool(owner) == handle
    roles: tuple[Role, ...] = ("current", role) if current else (role,)
    return Target(Pool(name=name, roles=roles, location=spell_location(location), owner=owner), handle, location)


def _attributes(driver: Driver, target: Target, wanted: Sequence[PoolAttribute]) -> list[Attribute]:
    """The values of these attributes. One driver call each; a refused one holds the error."""

    def read(which: PoolAttribute) -> tuple[int | None, Problem | None]:
        try:
            return driver.mem_pool_get_attribute(target.handle, which), None
        except DriverError as error:
            return None, error.problem

    return [Attribute(which.name.lower(), *read(which)) for which in wanted]


def _half_made(name: str, error: MempoolError | DriverError, *, gone: bool) -> MempoolError:
    """The failure of a creation that got half way, with what became of the pool instead of a result."""
    fate = "the new pool was destroyed again" if gone else "the new pool cannot be destroyed either and stays"
    problem = error.problem
    which = f"pool {name}: " if isinstance(error, DriverError) else ""
    return MempoolError(problem.code, f"{which}{problem.message}; {fate}", hint=problem.hint, driver=problem.driver)


def _inherited(name: str, holders: tuple[int, ...], cleared: tuple[int, ...]) -> tuple[Notice, ...]:
    """The warning about a pool that was born with access for `holders`; what was not asked for is `cleared`."""
    if not holders:
        return ()
    fate = "it was cleared" if cleared == holders else "it stays, as asked for"
    if cleared and cleared != holders:
        fate = f"that of {device_list(cleared)} was cleared, the rest was asked for"
    message = (
        f"the new pool {name} came with access for {device_list(holders)}, which nobody had granted"
        f" (a recycled pool handle, nvbug 5698116); {fate}"
    )
    return (Notice(code="inherited-access", message=message),)


def _check_size(max_size: int) -> None:
    """580.159.04 does not return from cuMemPoolCreate with a size of about 2**63 bytes (measured)."""
    if max_size > _LARGEST:
        raise MempoolError(
            "usage", f"a largest size of {max_size} bytes is more than {_LARGEST}", hint="64GiB, say, is a size"
        )


def _placeable(driver: Driver, location: Location, to: Sequence[str], devices: Sequence[Device]) -> list[int]:
    """Who gets access to a pool there; fails before there is a pool, when the device or one of `to` has none."""
    owner = owner_of(location)
    if owner is not None and not devices[owner].pools_supported:
        raise no_pool_support(devices[owner])
    pool = Pool(name="", roles=(), location=spell_location(location), owner=owner)
    cells = capability_cells(driver, location, owner, devices) if to else ()
    granted = access.select(to, devices, owner, cells)
    access.check_capable(pool, cells, granted, devices)
    return granted


def _holders(row: Row) -> tuple[int, ...]:
    """The devices other than the owner that have access."""
    return _devices(row, lambda cell: cell.access not in (None, "none"))


def _unread(row: Row) -> tuple[int, ...]:
    """The devices other than the owner of which the driver did not say what access they have."""
    return _devices(row, lambda cell: cell.unread)


def _devices(row: Row, which: Callable[[Cell], bool]) -> tuple[int, ...]:
    return tuple(cell.device for cell in row.cells if cell.device is not None and not cell.owner and which(cell))


def _cleared(driver: Driver, target: Target, before: Row, devices: Sequence[Device]) -> Row:
    """Takes access away from all that have it or may have it, in one call, then one by one where that is refused.

    The row as it reads then.
    """
    holders = sorted({*_holders(before), *_unread(before)})
    if not holders:
        return before
    if _refuses(driver, target, holders):
        for device in holders:
            _refuses(driver, target, (device,))
    return read_row(driver, target, devices)


def _refuses(driver: Driver, target: Target, holders: Sequence[int]) -> bool:
    entries = [AccessEntry(device_location(device), AccessFlags.NONE) for device in holders]
    try:
        driver.mem_pool_set_access(target.handle, entries)
    except DriverError:
        return True
    return False
