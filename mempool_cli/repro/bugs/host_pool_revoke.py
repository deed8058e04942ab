"""Access to a pool in host memory cannot be taken away again."""

from __future__ import annotations

from mempool_cli.repro.attempts import READ_ACCESS, try_with_a_kernel
from mempool_cli.repro.language import (
    Access,
    Bug,
    Call,
    Count,
    Counter,
    Equals,
    InArm,
    InHistory,
    Is,
    NewPool,
    Remark,
    Repeat,
    Rule,
    Step,
    Stop,
    When,
)

_PAGEABLE_MEMORY_ACCESS = 88

_TRY_WITH_A_KERNEL: tuple[Step, ...] = (
    Remark("A device that may use any memory of the host proves nothing here."),
    Call("device_get_attribute", (_PAGEABLE_MEMORY_ACCESS, "accessor_ordinal"), into="pageable"),
    When(Equals("pageable", 0), (), (Count("pageable"), Stop())),
    *try_with_a_kernel("stream"),
)

BUG = Bug(
    id="host-pool-revoke",
    kind="bug",
    title="revoking access to a pool in host memory has no effect",
    about="cuMemPoolSetAccess with NONE answers SUCCESS for a device that was granted access to a pool in host memory,"
    " and cuMemPoolGetAccess goes on answering READWRITE. A public test skips this case as a driver bug; on"
    " 580.159.04 it works.",
    sources=("https://github.com/NVIDIA/cuda-python, tests of peer access of pinned memory resources",),
    needs={"host": "a device that can access pools in host memory"},
    arms={
        "revoke": "granted, then revoked, and read back",
        "kernel": "granted, then revoked, and a kernel writes to memory of the pool",
    },
    faulting=("kernel",),
    enforced=("got_through", "blocked"),
    decides=("revoke", "kernel"),
    histories={"never-allocated": "pools without an allocation", "allocated": "with a live allocation"},
    numbers={"pools": 8},
    steps=(
        InHistory("allocated", (Call("use_device", (), into="stream"),)),
        Repeat(
            "pools",
            "i",
            (
                Call("mem_pool_create", (NewPool(64 << 20),), into="pool"),
                InHistory(
                    "allocated", (Call("mem_alloc_from_pool_async", (1 << 20, "pool", "stream"), into="memory"),)
                ),
                Call("mem_pool_set_access", ("pool", (Access("accessor", "READWRITE"),))),
                READ_ACCESS,
                When(Is("flags", "READWRITE"), (Count("granted"),), (Count("not_granted"),)),
                Remark("Now it is taken away, and the driver accepts that."),
                Call("mem_pool_set_access", ("pool", (Access("accessor", "NONE"),))),
                READ_ACCESS,
                When(Is("flags", "NONE"), (Count("revoked"),), (Count("kept"),)),
                InHistory("allocated", (InArm({"kernel": _TRY_WITH_A_KERNEL}),)),
                InHistory(
                    "allocated",
                    (Call("mem_free_async", ("memory", "stream")), Call("stream_synchronize", ("stream",))),
                ),
                Call("mem_pool_destroy", ("pool",)),
            ),
        ),
    ),
    counters=(
        Counter("granted", "pools granted to the accessor, by the reading"),
        Counter("not_granted", "grants that did not take"),
        Counter("revoked", "of these without access after the revoke"),
        Counter("kept", "with access still"),
        Counter("got_through", "kernels that wrote to memory of a revoked pool"),
        Counter("blocked", "kernels that faulted on it"),
        Counter("dropped", "kernels that ended well, and the owner saw nothing of it"),
        Counter("not_run", "kernels that failed in another way"),
        Counter("pageable", "devices that may use any memory of the host, so that a kernel proves nothing"),
    ),
    rules=(
        Rule("inconclusive", "{not_granted} grants did not take", "not_granted", at_least=1),
        Rule("affected", "{kept} of {granted} pools kept the access that was revoked", "kept", at_least=1),
        Rule(
            "inconclusive", "the device may use any memory of the host: a kernel proves nothing", "pageable", at_least=1
        ),
        Rule("affected", "a kernel wrote to memory of a pool that was revoked", "got_through", at_least=1),
        Rule("inconclusive", "a kernel ended well, and the owner saw nothing of it", "dropped", at_least=1),
        Rule("inconclusive", "the kernel failed in another way", "not_run", at_least=1),
        Rule("not-affected", "{revoked} of {granted} revokes took"),
    ),
)
