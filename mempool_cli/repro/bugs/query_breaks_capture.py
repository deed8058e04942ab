"""A question about a pool, from another thread, destroys a stream capture."""

from __future__ import annotations

from mempool_cli.repro.language import Bug, Call, Count, Counter, InThread, Is, NewPool, Note, Place, Remark, Rule, When

BUG = Bug(
    id="query-breaks-capture",
    kind="trap",
    title="asking about a pool in one thread invalidates a global-mode capture of another",
    about="While a stream is captured in global mode, pool calls of every thread are refused, harmless questions too,"
    " and the capture is lost. A thread in relaxed mode (cuThreadExchangeStreamCaptureMode) may ask.",
    sources=("CUDA Driver API, cuThreadExchangeStreamCaptureMode", "measured on an H200 with driver 580.159.04"),
    needs={"host": "a device that can access pools in host memory"},
    arms={"ask": "asked once, from another thread"},
    decides=("ask",),
    histories={"never-allocated": "a pool without an allocation"},
    numbers={},
    steps=(
        Call("use_device", (), into="stream"),
        Call("mem_pool_create", (NewPool(64 << 20),), into="pool"),
        Remark("The control: a capture during which nobody asks."),
        Call("stream_begin_capture", ("stream", 0)),
        Call("stream_end_capture", ("stream",), into="graph", code="ended"),
        When(Is("ended", "CUDA_SUCCESS"), (Count("control"),)),
        Remark("And one during which another thread asks about the pool."),
        Call("stream_begin_capture", ("stream", 0)),
        InThread(
            (
                Call("mem_pool_get_access", ("pool", Place("accessor")), into="flags", code="asked"),
                Note("asked"),
            )
        ),
        Call("stream_end_capture", ("stream",), into="graph", code="ended"),
        When(
            Is("ended", "CUDA_SUCCESS"),
            (),
            (When(Is("asked", "CUDA_SUCCESS"), (Count("lost_otherwise"),), (Count("lost"),)),),
        ),
    ),
    counters=(
        Counter("control", "captures that nobody disturbed and that ended well"),
        Counter("lost", "captures that were lost when a question was refused"),
        Counter("lost_otherwise", "captures that were lost though the question was answered"),
    ),
    rules=(
        Rule("inconclusive", "a capture that nobody disturbs is lost too", "control", below=1),
        Rule("inconclusive", "the question was answered, and the capture was lost", "lost_otherwise", at_least=1),
        Rule("present", "the question cost the other thread its capture", "lost", at_least=1),
        Rule("absent", "the capture survived the question"),
    ),
)
