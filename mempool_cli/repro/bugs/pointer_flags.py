"""The pointer attribute tells of access that the pool does not give."""

from __future__ import annotations

from mempool_cli.repro.attempts import READ_ACCESS
from mempool_cli.repro.language import Bug, Call, Count, Counter, Is, NewPool, Remark, Repeat, Rule, When

_ACCESS_FLAGS = 16

BUG = Bug(
    id="pointer-flags",
    kind="bug",
    title="CU_POINTER_ATTRIBUTE_ACCESS_FLAGS says READWRITE where the pool says NONE",
    about="For memory of a pool to which a device has no access, cuPointerGetAttribute with"
    " CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, asked in a context of that device, answers READWRITE; who believes it gets a"
    " fault. cuMemPoolGetAccess is right.",
    sources=("measured on an H200 with driver 580.159.04 (CUDA 13.0)",),
    needs={"host": "a device that can access pools in host memory"},
    arms={"ask": "no access was ever granted"},
    decides=("ask",),
    histories={"allocated": "memory allocated from the pool"},
    numbers={"pools": 8},
    steps=(
        Call("use_device", (), into="stream"),
        Repeat(
            "pools",
            "i",
            (
                Call("mem_pool_create", (NewPool(64 << 20),), into="pool"),
                Call("mem_alloc_from_pool_async", (1 << 20, "pool", "stream"), into="memory"),
                Call("stream_synchronize", ("stream",)),
                READ_ACCESS,
                When(Is("flags", "NONE"), (Count("ungranted"),)),
                Remark("The same question, about the memory and in a context of the accessor."),
                Call("pointer_get_attribute", (_ACCESS_FLAGS, "memory"), into="pointer_flags"),
                When(Is("pointer_flags", "NONE"), (Count("honest"),), (Count("wrong"),)),
                Call("mem_free_async", ("memory", "stream")),
                Call("stream_synchronize", ("stream",)),
                Call("mem_pool_destroy", ("pool",)),
            ),
        ),
    ),
    counters=(
        Counter("ungranted", "pools without access for the accessor, by cuMemPoolGetAccess"),
        Counter("honest", "pointer attributes that say so too"),
        Counter("wrong", "pointer attributes that say something else"),
    ),
    rules=(
        Rule("inconclusive", "only {ungranted} of 8 new pools had no access", "ungranted", below=8),
        Rule("affected", "{wrong} of 8 pointer attributes tell of access that there is not", "wrong", at_least=1),
        Rule("not-affected", "all {honest} pointer attributes agree with the pool"),
    ),
)
