"""A clearing call that lists the owner is refused whole."""

from __future__ import annotations

from mempool_cli.repro.attempts import READ_ACCESS, RETAIN_BOTH
from mempool_cli.repro.language import (
    Access,
    Bug,
    Call,
    Count,
    Counter,
    Is,
    NewPool,
    Note,
    Remark,
    Rule,
    Step,
    When,
)

_READ: Step = READ_ACCESS

BUG = Bug(
    id="owner-in-batch",
    kind="trap",
    title="one cuMemPoolSetAccess that takes access from everyone, the owner too, takes it from nobody",
    about="The owner of a pool cannot lose access, so an entry that says so is refused, and with it the whole call."
    " Code that ignores the result believes that it has cleared the pool.",
    sources=(
        "https://github.com/NVIDIA/cuda-python/issues/2807",
        "https://github.com/NVIDIA/cuda-python/pull/2871",
    ),
    needs={
        "device": "two devices, one of which reaches the other",
        "host": "a device that can access pools in host memory",
    },
    arms={"clear": "granted, then cleared together with the owner"},
    decides=("clear",),
    histories={"never-allocated": "a pool without an allocation"},
    numbers={},
    steps=(
        RETAIN_BOTH,
        Call("mem_pool_create", (NewPool(64 << 20),), into="pool"),
        Call("mem_pool_set_access", ("pool", (Access("accessor", "READWRITE"),))),
        _READ,
        When(Is("flags", "READWRITE"), (Count("granted"),)),
        Remark("The accessor first, then the owner, in one call."),
        Call("mem_pool_set_access", ("pool", (Access("accessor", "NONE"), Access("owner", "NONE"))), code="cleared"),
        Note("cleared"),
        When(Is("cleared", "CUDA_SUCCESS"), (Count("accepted"),)),
        _READ,
        When(Is("flags", "NONE"), (), (Count("kept"),)),
        Call("mem_pool_destroy", ("pool",)),
    ),
    counters=(
        Counter("granted", "grants that took"),
        Counter("accepted", "clearing calls that were accepted"),
        Counter("kept", "pools that kept the access"),
    ),
    rules=(
        Rule("inconclusive", "the grant did not take", "granted", below=1),
        Rule("present", "the accessor kept its access", "kept", at_least=1),
        Rule("inconclusive", "the call was refused, and the access was gone all the same", "accepted", below=1),
        Rule("absent", "the accessor lost its access"),
    ),
)
