"""A new pool with the handle of a destroyed one has the peer access of that one."""

from __future__ import annotations

from mempool_cli.repro.attempts import READ_ACCESS, RETAIN_BOTH, try_with_a_kernel
from mempool_cli.repro.language import (
    Access,
    Bug,
    Call,
    Count,
    Counter,
    Fetch,
    Holds,
    InArm,
    InHistory,
    Is,
    Keep,
    Less,
    NewPool,
    Note,
    Place,
    Put,
    Remark,
    Repeat,
    Rule,
    Step,
    Take,
    When,
)

_ENOUGH = 8
_BYTES = 1 << 20

_TRY_WITH_A_KERNEL: tuple[Step, ...] = (
    Remark("The driver says that the accessor may use this pool. May its kernel?"),
    Call("use_device", (), into="stream"),
    Call("mem_alloc_from_pool_async", (_BYTES, "pool", "stream"), into="memory"),
    Call("stream_synchronize", ("stream",)),
    Call("use_accessor", (), into="there"),
    *try_with_a_kernel("there"),
)

# Nobody has granted anything on a pool that was created a moment ago.
_LOOK_AT_THE_NEW_POOL: tuple[Step, ...] = (
    Call("mem_pool_create", (NewPool(64 << 20),), into="pool"),
    Count("created"),
    READ_ACCESS,
    When(
        Holds("tainted", "pool"),
        (
            Count("recycled_tainted"),
            Put("tainted_values", "pool"),
            When(Is("flags", "NONE"), (), (Count("inherited"), InArm({"kernel": _TRY_WITH_A_KERNEL}))),
        ),
        (
            When(
                Holds("clean", "pool"),
                (Count("recycled_clean"), When(Is("flags", "NONE"), (), (Count("clean_with_access"),))),
                (Count("fresh"), When(Is("flags", "NONE"), (), (Count("fresh_with_access"),))),
            ),
        ),
    ),
    Take("tainted", "pool"),
    Take("clean", "pool"),
    InHistory(
        "allocated",
        (
            Call("mem_alloc_from_pool_async", (_BYTES, "pool", "stream"), into="memory"),
            Call("mem_free_async", ("memory", "stream")),
            Call("stream_synchronize", ("stream",)),
        ),
    ),
    Keep("pools", "i", "pool"),
)

_GRANT: tuple[Step, ...] = (
    Call("mem_pool_set_access", ("pool", (Access("accessor", "READWRITE"),))),
    READ_ACCESS,
    When(Is("flags", "READWRITE"), (), (Count("not_granted"),)),
)

_CLEAN_UP = InArm(
    {
        "per-device": (
            Call("mem_pool_set_access", ("pool", (Access("accessor", "NONE"),)), code="cleared"),
            Note("cleared"),
        ),
        "one-call-with-owner": (
            Call(
                "mem_pool_set_access", ("pool", (Access("accessor", "NONE"), Access("owner", "NONE"))), code="cleared"
            ),
            Note("cleared"),
        ),
    }
)

_GONE: tuple[Step, ...] = (Take("tainted", "pool"), Count("cleared_by_others"))

_STILL_THERE = When(Is("last", "READWRITE"), (), _GONE)

_TAINT: tuple[Step, ...] = (
    Fetch("pool", "pools", "i"),
    *_GRANT,
    _CLEAN_UP,
    Remark("Without a clearing call, or after a refused one, the access must still be there at the destroy."),
    Call("mem_pool_get_access", ("pool", Place("accessor")), into="last"),
    Call("mem_pool_destroy", ("pool",)),
    When(Is("flags", "READWRITE"), (Put("tainted", "pool"),)),
    InArm(
        {
            **dict.fromkeys(("none", "kernel"), (_STILL_THERE,)),
            **{
                arm: (When(Is("cleared", "CUDA_SUCCESS"), (), (_STILL_THERE,)),)
                for arm in ("per-device", "one-call-with-owner")
            },
        }
    ),
)

_CONTROL: tuple[Step, ...] = (
    Fetch("pool", "pools", "i"),
    Call("mem_pool_destroy", ("pool",)),
    Put("clean", "pool"),
)

BUG = Bug(
    id="recycled-handle",
    kind="bug",
    title="a pool with a recycled handle inherits the access of the destroyed pool",
    about="A pool handle is given out again after its pool was destroyed. On an affected driver the new pool then has"
    " the peer access of the old one, which nobody granted. Clearing access before cuMemPoolDestroy avoids it; a"
    " clearing call that lists the owner too is refused whole and clears nothing.",
    sources=(
        "nvbug 5698116",
        "https://github.com/NVIDIA/cuda-python/issues/1289",
        "https://github.com/NVIDIA/cuda-python/issues/2807",
        "https://github.com/NVIDIA/cuda-python/pull/2871",
    ),
    needs={
        "device": "two devices, one of which reaches the other",
        "host": "a device that can access pools in host memory",
    },
    arms={
        "none": "no clearing before destroy",
        "per-device": "access cleared device by device before destroy",
        "one-call-with-owner": "one clearing call that lists the owner too, as a public workaround did",
        "kernel": "no clearing, and a kernel of the accessor writes to the first pool that inherited access",
    },
    faulting=("kernel",),
    enforced=("got_through", "blocked"),
    decides=("none",),
    histories={"never-allocated": "pools without an allocation", "allocated": "allocated, freed, synchronised"},
    numbers={"attempts": 256, "batch": 16, "control_rounds": 4},
    steps=(
        RETAIN_BOTH,
        InHistory("allocated", (Call("use_device", (), into="stream"),)),
        Repeat(
            "rounds",
            "round",
            (
                Remark("Some new pools side by side: which handle has each, and what access?"),
                Repeat("batch", "i", _LOOK_AT_THE_NEW_POOL),
                When(
                    Less("round", "control_rounds"),
                    (Remark("The control: pools that nobody grants anything."), Repeat("batch", "i", _CONTROL)),
                    (Repeat("batch", "i", _TAINT),),
                ),
            ),
        ),
    ),
    counters=(
        Counter("created", "pools created"),
        Counter("fresh", "with a new handle"),
        Counter("recycled_clean", "with the handle of a pool that was never granted"),
        Counter("recycled_tainted", "with the handle of a pool that was granted"),
        Counter("tainted_values", "different such handles", of="tainted_values"),
        Counter("inherited", "of these born with access"),
        Counter("fresh_with_access", "new handles born with access"),
        Counter("clean_with_access", "handles of never granted pools born with access"),
        Counter("not_granted", "grants that did not take"),
        Counter("got_through", "kernels that wrote to memory of a pool with inherited access"),
        Counter("blocked", "kernels that faulted on it"),
        Counter("dropped", "kernels that ended well, and the owner saw nothing of it"),
        Counter("not_run", "kernels that failed in another way"),
        Counter("cleared_by_others", "grants that were gone before destroy, though nobody cleared them"),
    ),
    rules=(
        Rule("inconclusive", "a new handle had access: something else grants it", "fresh_with_access", at_least=1),
        Rule("inconclusive", "a handle that was never granted had access", "clean_with_access", at_least=1),
        Rule("inconclusive", "no handle came back of a pool that was never granted", "recycled_clean", below=1),
        Rule("affected", "access was inherited by {inherited} of {recycled_tainted}", "inherited", at_least=1),
        Rule("inconclusive", "{not_granted} grants did not take", "not_granted", at_least=1),
        Rule("inconclusive", "{cleared_by_others} grants were gone before destroy", "cleared_by_others", at_least=1),
        Rule(
            "inconclusive",
            f"only {{recycled_tainted}} tainted handles came back, of {_ENOUGH} needed",
            "recycled_tainted",
            below=_ENOUGH,
        ),
        Rule("inconclusive", "only one tainted handle came back, again and again", "tainted_values", below=2),
        Rule("not-affected", "none of {recycled_tainted} recycled handles had access"),
    ),
)
