"""A destroyed pool's handle is still accepted."""

from __future__ import annotations

from mempool_cli.repro.language import Access, Bug, Call, Count, Counter, Is, NewPool, Note, Place, Remark, Rule, When

BUG = Bug(
    id="use-after-destroy",
    kind="trap",
    title="access of a destroyed pool can be asked and set without an error",
    about="The driver does not check the handle: it reads and writes the memory in which the pool was. The calls answer"
    " SUCCESS and mean nothing, or the process is killed.",
    sources=("measured on an H200 with driver 580.159.04 (CUDA 13.0)",),
    needs={"host": "a device that can access pools in host memory"},
    arms={"use": "destroyed, then asked and set"},
    decides=("use",),
    histories={"never-allocated": "a pool without an allocation"},
    numbers={},
    crash_counts=True,
    steps=(
        Call("mem_pool_create", (NewPool(64 << 20),), into="pool"),
        Call("mem_pool_destroy", ("pool",)),
        Remark("From here on the handle is dead."),
        Call("mem_pool_get_access", ("pool", Place("accessor")), into="flags", code="asked"),
        Note("asked"),
        When(Is("asked", "CUDA_SUCCESS"), (Count("accepted"),)),
        Call("mem_pool_set_access", ("pool", (Access("accessor", "READWRITE"),)), code="set"),
        Note("set"),
        When(Is("set", "CUDA_SUCCESS"), (Count("accepted"),)),
    ),
    counters=(Counter("accepted", "calls on the dead handle that answered SUCCESS"),),
    rules=(
        Rule("present", "{accepted} of 2 calls on a destroyed pool answered SUCCESS", "accepted", at_least=1),
        Rule("absent", "both calls on a destroyed pool were refused"),
    ),
)
