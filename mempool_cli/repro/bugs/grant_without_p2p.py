"""A grant to a device that cannot reach the pool is accepted, and the next allocation fails."""

from __future__ import annotations

from mempool_cli.repro.attempts import READ_ACCESS, RETAIN_BOTH
from mempool_cli.repro.language import Access, Bug, Call, Count, Counter, Is, NewPool, Note, Remark, Rule, When

BUG = Bug(
    id="grant-without-p2p",
    kind="trap",
    title="a grant to a device without P2P succeeds on a fresh pool, and the next allocation fails",
    about="cuMemPoolSetAccess does not ask whether the device can reach the owner as long as nothing was allocated from"
    " the pool. The failure comes with the next allocation, far from its cause.",
    sources=(
        "CUDA Programming Guide, stream ordered memory allocator",
        "https://github.com/JuliaGPU/CUDA.jl/issues/3166",
    ),
    needs={"unreachable": "two devices, one of which does not reach the other"},
    arms={"grant": "granted before anything was allocated"},
    decides=("grant",),
    histories={"never-allocated": "a pool without an allocation"},
    numbers={},
    steps=(
        RETAIN_BOTH,
        Call("use_device", (), into="stream"),
        Remark("The control: a pool like it gives memory to its owner as long as nobody is granted anything."),
        Call("mem_pool_create", (NewPool(64 << 20),), into="control"),
        Call("mem_alloc_from_pool_async", (1 << 20, "control", "stream"), into="memory", code="allocated"),
        When(Is("allocated", "CUDA_SUCCESS"), (Count("control"),)),
        Call("mem_pool_create", (NewPool(64 << 20),), into="pool"),
        Call("mem_pool_set_access", ("pool", (Access("accessor", "READWRITE"),)), code="granted"),
        Note("granted"),
        READ_ACCESS,
        When(Is("granted", "CUDA_SUCCESS"), (Count("accepted"), When(Is("flags", "NONE"), (Count("not_granted"),)))),
        Remark("The pool is fresh; so much for the grant. Does it still give memory to its owner?"),
        Call("mem_alloc_from_pool_async", (1 << 20, "pool", "stream"), into="memory", code="allocated"),
        When(Is("allocated", "CUDA_SUCCESS"), (), (Count("failed"),)),
        Call("mem_pool_destroy", ("pool",)),
    ),
    counters=(
        Counter("control", "allocations from a pool without a grant"),
        Counter("accepted", "grants that were accepted"),
        Counter("not_granted", "of these that did not take"),
        Counter("failed", "allocations that failed then"),
    ),
    rules=(
        Rule("inconclusive", "a pool without a grant gives no memory either", "control", below=1),
        Rule("absent", "the grant was refused", "accepted", below=1),
        Rule("inconclusive", "the grant was accepted and did not take", "not_granted", at_least=1),
        Rule("present", "the grant was accepted, and the allocation failed", "failed", at_least=1),
        Rule("absent", "the grant was accepted, and the owner still gets memory"),
    ),
)
