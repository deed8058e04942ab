"""Access to a pool in host memory cannot be taken away again."""

from __future__ import annotations

from mempool_cli.repro.language import (
    Access,
    Bug,
    Call,
    Count,
    Counter,
    InHistory,
    Is,
    NewPool,
    Place,
    Remark,
    Repeat,
    Rule,
    Step,
    When,
)

_READ: Step = Call("mem_pool_get_access", ("pool", Place("accessor")), into="flags")

BUG = Bug(
    id="host-pool-revoke",
    kind="bug",
    title="revoking access to a pool in host memory has no effect",
    about="cuMemPoolSetAccess with NONE answers SUCCESS for a device that was granted access to a pool in host memory,"
    " and cuMemPoolGetAccess goes on answering READWRITE. A public test skips this case as a driver bug; on"
    " 580.159.04 it works.",
    sources=("https://github.com/NVIDIA/cuda-python, tests of peer access of pinned memory resources",),
    needs={"host": "a device that can access pools in host memory"},
    arms={"revoke": "granted, then revoked"},
    decides="revoke",
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
                _READ,
                When(Is("flags", "READWRITE"), (Count("granted"),)),
                Remark("Now it is taken away, and the driver accepts that."),
                Call("mem_pool_set_access", ("pool", (Access("accessor", "NONE"),))),
                _READ,
                When(Is("flags", "NONE"), (Count("revoked"),), (Count("kept"),)),
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
        Counter("revoked", "of these without access after the revoke"),
        Counter("kept", "with access still"),
    ),
    rules=(
        Rule("inconclusive", "only {granted} of 8 grants took", "granted", below=8),
        Rule("affected", "{kept} of {granted} pools kept the access that was revoked", "kept", at_least=1),
        Rule("not-affected", "all {revoked} revokes took"),
    ),
)
