"""What a device copies into a pool of another is lost once access to that pool was set."""

from __future__ import annotations

from mempool_cli.repro.attempts import READ_ACCESS
from mempool_cli.repro.language import (
    MIXED,
    Access,
    Bug,
    Call,
    Count,
    Counter,
    Equals,
    InHistory,
    Is,
    NewPool,
    Note,
    Remark,
    Repeat,
    Rule,
    Step,
    Stop,
    When,
    Wrote,
)

_BYTES = 1 << 20
_POISON, _PAYLOAD = 0xA5, 0x5A
_NON_BLOCKING = 1


def _word_of(byte: int) -> int:
    return byte * 0x0101_0101


def _lost(counter: str, words: str) -> Rule:
    why = f"{{{counter}}} of {{granted}} copies {words}, where a kernel's write arrived"
    return Rule("affected", why, counter, at_least=1)


_BOTH_SIDES: tuple[Step, ...] = (
    Call("device_primary_ctx_retain", ("owner_ordinal",), into="owner_context"),
    Call("device_primary_ctx_retain", ("accessor_ordinal",), into="accessor_context"),
    Remark("The accessor has the payload, in memory of its own."),
    Call("ctx_set_current", ("accessor_context",)),
    Call("stream_create", (_NON_BLOCKING,), into="there"),
    Call("device_get_default_mem_pool", ("accessor_ordinal",), into="own_pool"),
    Call("mem_alloc_from_pool_async", (_BYTES, "own_pool", "there"), into="payload"),
    Call("memset_d8_async", ("payload", _PAYLOAD, _BYTES, "there")),
    Call("stream_synchronize", ("there",)),
    Call("ctx_set_current", ("owner_context",)),
    Call("stream_create", (_NON_BLOCKING,), into="stream"),
)

_POISONED_MEMORY: tuple[Step, ...] = (
    Call("mem_alloc_from_pool_async", (_BYTES, "pool", "stream"), into="memory"),
    Call("memset_d8_async", ("memory", _POISON, _BYTES, "stream")),
    Call("stream_synchronize", ("stream",)),
)

_COPY_AND_READ: tuple[Step, ...] = (
    Call("ctx_set_current", ("accessor_context",)),
    Call("memcpy_peer_async", ("memory", "owner_context", "payload", "accessor_context", _BYTES, "there")),
    Call("stream_synchronize", ("there",)),
    Call("ctx_set_current", ("owner_context",)),
    Call("read_all", ("memory", _BYTES), into="word"),
)

_ARRIVED = Equals("word", _word_of(_PAYLOAD))

_WHAT_IS_THERE_INSTEAD = When(
    Equals("word", _word_of(_POISON)),
    (Count("untouched"),),
    (
        When(
            Equals("word", 0),
            (Count("zeros"),),
            (When(Equals("word", MIXED), (Count("mixed"),), (Count("other"),)),),
        ),
    ),
)

# This needs no leave to fault: access was granted and read back, and a path that loses what goes over it is no fault.
# Should it fault all the same, only this process is lost, which is no client of an MPS server.
_TRY_THE_PATH: tuple[Step, ...] = (
    Remark("Lost. Without a grant a copy may go through memory of the host: does the grant's own path work at all?"),
    Call("ctx_set_current", ("accessor_context",)),
    Call("write_by_kernel", ("memory", "there"), code="ran"),
    Note("ran"),
    When(Is("ran", "CUDA_SUCCESS"), (), (Count("kernel_lost"), Stop())),
    Call("read_by_owner", ("memory",), into="word"),
    When(Wrote("word"), (Count("kernel_arrived"),), (Count("kernel_lost"),)),
)

_GRANT = Call("mem_pool_set_access", ("pool", (Access("accessor", "READWRITE"),)))

BUG = Bug(
    id="peer-write-lost",
    kind="bug",
    title="a copy from another device into a pool is lost once access to the pool was set",
    about="After one cuMemPoolSetAccess on a pool, cuMemcpyPeerAsync from the accessor into memory of that pool answers"
    " SUCCESS and its data does not arrive (zeros were seen), though cuMemPoolGetAccess says READWRITE. Without the"
    " grant the same copy arrives. Reported for Turing with driver 590.48.01.",
    sources=("nvbug 6098762", "https://github.com/JuliaGPU/CUDA.jl/pull/3112"),
    needs={"device": "two devices, one of which reaches the other"},
    arms={"granted": "access set for the accessor, and copied into the pool"},
    decides=("granted",),
    histories={
        "granted-first": "granted, then allocated and poisoned",
        "allocated-first": "allocated and poisoned, then granted",
    },
    numbers={"pools": 8},
    steps=(
        *_BOTH_SIDES,
        Remark("The control: the same copy into a pool without a grant. Its memory is poisoned first."),
        Call("mem_pool_create", (NewPool(64 << 20),), into="pool"),
        *_POISONED_MEMORY,
        *_COPY_AND_READ,
        When(_ARRIVED, (Count("control"),), (Stop(),)),
        Repeat(
            "pools",
            "i",
            (
                Call("mem_pool_create", (NewPool(64 << 20),), into="pool"),
                InHistory("granted-first", (_GRANT,)),
                *_POISONED_MEMORY,
                InHistory("allocated-first", (_GRANT,)),
                *_COPY_AND_READ,
                Remark("Read now, not before: the copy had this access."),
                READ_ACCESS,
                When(
                    Is("flags", "READWRITE"),
                    (
                        Count("granted"),
                        When(_ARRIVED, (Count("arrived"),), (_WHAT_IS_THERE_INSTEAD, *_TRY_THE_PATH)),
                    ),
                    (Count("not_granted"),),
                ),
                Remark("Cleared, or the next pool may inherit it (nvbug 5698116)."),
                Call("mem_pool_set_access", ("pool", (Access("accessor", "NONE"),))),
                Call("mem_free_async", ("memory", "stream")),
                Call("stream_synchronize", ("stream",)),
                Call("mem_pool_destroy", ("pool",)),
            ),
        ),
    ),
    counters=(
        Counter("control", "copies that arrived in a pool without a grant"),
        Counter("not_granted", "grants that did not take"),
        Counter("granted", "copies into pools granted to the accessor, by the reading"),
        Counter("arrived", "of these that arrived"),
        Counter("untouched", "that wrote nothing"),
        Counter("zeros", "that left zeros"),
        Counter("other", "that left something else"),
        Counter("mixed", "that arrived in part"),
        Counter("kernel_arrived", "kernels that wrote where a copy did not"),
        Counter("kernel_lost", "kernels that did not either"),
    ),
    rules=(
        Rule("inconclusive", "the control, a copy into a pool without a grant, does not arrive", "control", below=1),
        Rule("inconclusive", "{not_granted} grants did not take", "not_granted", at_least=1),
        Rule(
            "inconclusive",
            "where a copy is lost, a kernel's write is too: the path between the devices may be broken",
            "kernel_lost",
            at_least=1,
        ),
        Rule(
            "inconclusive",
            "{mixed} of {granted} copies arrived in part: the path between the devices may be broken",
            "mixed",
            at_least=1,
        ),
        _lost("untouched", "wrote nothing"),
        _lost("zeros", "left zeros"),
        _lost("other", "left something else"),
        Rule("not-affected", "all {arrived} copies arrived"),
    ),
)
