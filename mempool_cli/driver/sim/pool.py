"""A simulated pool and the rules of cuMemPoolSetAccess and cuMemPoolGetAccess on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mempool_cli.driver.codes import Code
from mempool_cli.driver.port import (
    AccessEntry,
    AccessFlags,
    AllocationType,
    Location,
    LocationType,
    PoolAttribute,
    PoolProperties,
)

_KNOWN_FLAGS = frozenset(AccessFlags)
_RESERVED_STEP = 32 << 20
_HOST_TYPES = (LocationType.HOST, LocationType.HOST_NUMA)

Reaches = Callable[[int, int], bool]
"""(accessor, owner) -> whether P2P works; both are ordinals."""


@dataclass
class SimPool:
    """One pool. `access` holds the flags of devices other than the owner; absent means NONE."""

    handle: int
    properties: PoolProperties
    is_default: bool = False
    faults: frozenset[str] = frozenset()
    access: dict[int, int] = field(default_factory=dict)
    allocations: dict[int, int] = field(default_factory=dict)
    ever_allocated: bool = False
    ever_set: bool = False
    attributes: dict[int, int] = field(default_factory=dict)

    host_access: int = AccessFlags.NONE

    def __post_init__(self) -> None:
        if self.on_host:
            self.host_access = AccessFlags.READWRITE
        reuse = (
            PoolAttribute.REUSE_FOLLOW_EVENT_DEPENDENCIES,
            PoolAttribute.REUSE_ALLOW_OPPORTUNISTIC,
            PoolAttribute.REUSE_ALLOW_INTERNAL_DEPENDENCIES,
        )
        self.attributes = {attribute: int(attribute in reuse) for attribute in PoolAttribute}

    @cached_property
    def on_host(self) -> bool:
        """Whether its memory is the host's, on whichever node."""
        return self.properties.location.type in _HOST_TYPES

    @cached_property
    def managed(self) -> bool:
        """Managed pools have no owner that cannot lose access: it starts as NONE even for their device."""
        return self.properties.allocation_type == AllocationType.MANAGED

    @cached_property
    def owner(self) -> int | None:
        """The ordinal of the device that always has access; None on host and managed pools."""
        location = self.properties.location
        return location.id if location.type == LocationType.DEVICE and not self.managed else None

    def set_access(self, entries: Sequence[AccessEntry], devices: int, reaches: Reaches) -> Code:
        """All or nothing: every entry is checked first; when all pass, the last entry of a location wins.

        The places of all entries are checked before the flags of any (measured).
        """
        if not entries:
            return Code.CUDA_ERROR_INVALID_VALUE
        for check in (self._check_place, self._check_flags):
            for entry in entries:
                code = check(entry, devices, reaches)
                if code != Code.CUDA_SUCCESS:
                    return code
        self.ever_set = True
        stuck = self.on_host and "host-pool-revoke" in self.faults
        for location, flags in entries:
            if stuck and flags == AccessFlags.NONE:
                continue
            if location.type == LocationType.DEVICE and location.id != self.owner:
                self.access[location.id] = flags
            elif location.type in _HOST_TYPES and self.managed:
                self.host_access = flags
        return Code.CUDA_SUCCESS

    def _check_place(self, entry: AccessEntry, devices: int, reaches: Reaches) -> Code:
        """READ is refused before anything else is looked at, an ordinal out of range included."""
        location, flags = entry
        if flags == AccessFlags.READ:
            return Code.CUDA_ERROR_NOT_SUPPORTED
        if location.type == LocationType.DEVICE:
            return Code.CUDA_SUCCESS if 0 <= location.id < devices else Code.CUDA_ERROR_INVALID_DEVICE
        if self.owner is not None:
            return Code.CUDA_ERROR_NOT_SUPPORTED
        return Code.CUDA_SUCCESS if location.type in _HOST_TYPES else Code.CUDA_ERROR_INVALID_VALUE

    def _check_flags(self, entry: AccessEntry, devices: int, reaches: Reaches) -> Code:
        location, flags = entry
        if flags not in _KNOWN_FLAGS:
            return Code.CUDA_ERROR_INVALID_VALUE
        if location.type in _HOST_TYPES:
            keeps = self.managed or flags == AccessFlags.READWRITE
            return Code.CUDA_SUCCESS if keeps else Code.CUDA_ERROR_NOT_SUPPORTED
        if location.id == self.owner:
            return Code.CUDA_ERROR_INVALID_DEVICE if flags == AccessFlags.NONE else Code.CUDA_SUCCESS
        if self.owner is not None and flags == AccessFlags.READWRITE and self.ever_allocated:
            # A pool that was never allocated from accepts any device: its next allocation fails instead.
            return Code.CUDA_SUCCESS if reaches(location.id, self.owner) else Code.CUDA_ERROR_INVALID_DEVICE
        return Code.CUDA_SUCCESS

    def get_access(self, location: Location, devices: int) -> tuple[Code, int]:
        """The code, and the flags when it is SUCCESS."""
        if location.type in _HOST_TYPES:
            return Code.CUDA_SUCCESS, self.host_access
        if location.type != LocationType.DEVICE or not 0 <= location.id < devices:
            return Code.CUDA_ERROR_INVALID_VALUE, 0
        if location.id == self.owner:
            return Code.CUDA_SUCCESS, AccessFlags.READWRITE
        return Code.CUDA_SUCCESS, self.access.get(location.id, AccessFlags.NONE)

    def lets(self, device: int) -> bool:
        """Whether a kernel on that device may touch the memory."""
        return device == self.owner or self.access.get(device) == AccessFlags.READWRITE

    def allocate(self, pointer: int, size: int, capacity: int, reaches: Reaches) -> Code:
        """Takes `size` bytes; a grant to a device without P2P fails here, far from its cause."""
        owner = self.owner
        if owner is not None and any(flags and not reaches(device, owner) for device, flags in self.access.items()):
            return Code.CUDA_ERROR_INVALID_DEVICE
        limit = min(self.properties.max_size or capacity, capacity)
        if self.used + size > limit:
            return Code.CUDA_ERROR_OUT_OF_MEMORY
        self.ever_allocated = True
        if size:
            self.allocations[pointer] = size
        self._account()
        return Code.CUDA_SUCCESS

    def free(self, pointer: int) -> None:
        """Gives an allocation back; KeyError when it is none of this pool's."""
        del self.allocations[pointer]
        self._account()

    @property
    def used(self) -> int:
        """Bytes in live allocations."""
        return sum(self.allocations.values())

    def _account(self) -> None:
        reserved = -(-self.used // _RESERVED_STEP) * _RESERVED_STEP
        for current, high, value in (
            (PoolAttribute.USED_MEM_CURRENT, PoolAttribute.USED_MEM_HIGH, self.used),
            (PoolAttribute.RESERVED_MEM_CURRENT, PoolAttribute.RESERVED_MEM_HIGH, reserved),
        ):
            self.attributes[current] = value
            self.attributes[high] = max(self.attributes[high], value)
