"""Steps that several bugs take: reading a pool's access, and trying it with a kernel."""

from __future__ import annotations

from mempool_cli.repro.language import Call, Count, Is, Note, Place, Remark, Step, Stop, When, Wrote

READ_ACCESS: Step = Call("mem_pool_get_access", ("pool", Place("accessor")), into="flags")

# Whether a driver grants to a peer without any context was never measured: if not, every trial would fail. The programs
# in which these bugs were seen, such as the tests of cuda-python, have contexts, so they hide nothing.
RETAIN_BOTH: Step = Call("retain_both")


def try_with_a_kernel(stream: str) -> tuple[Step, ...]:
    """A kernel writes to `memory` on this stream of the accessor, the owner looks, and the trial stops.

    One of the counters `got_through`, `dropped`, `blocked` and `not_run` then says what came of it.
    """
    return (
        Call("write_by_kernel", ("memory", stream), code="ran"),
        Note("ran"),
        When(
            Is("ran", "CUDA_SUCCESS"),
            (
                Remark("What the writer reads back proves nothing: the owner has to see it."),
                Call("read_by_owner", ("memory",), into="word"),
                When(Wrote("word"), (Count("got_through"),), (Count("dropped"),)),
            ),
            (When(Is("ran", "CUDA_ERROR_ILLEGAL_ADDRESS"), (Count("blocked"),), (Count("not_run"),)),),
        ),
        Stop(),
    )
