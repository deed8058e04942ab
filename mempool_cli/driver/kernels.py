"""The package's own kernels, which show whether a device may touch memory: only a kernel can."""

from __future__ import annotations

import struct

WRITE = "mempool_write"
READ = "mempool_read"
FILL = "mempool_fill"
COPY = "mempool_copy"
CHECK = "mempool_check"
ADD = "mempool_add"
WORD_BYTES = 4

_WRITE_PARAMETERS = struct.Struct("<QI")
_READ_PARAMETERS = struct.Struct("<QQ")
_FILL_PARAMETERS = struct.Struct("<QQQQ")
_COPY_PARAMETERS = struct.Struct("<QQQ")
_CHECK_PARAMETERS = struct.Struct("<QQQQQQ")
_ADD_PARAMETERS = struct.Struct("<QQQQQ")


# An old target, which every card from Maxwell on can compile; volatile, so that nothing is cached on the way. The
# kernels of longs go through memory with as many threads as they are given.
IMAGE = b"""\
.version 6.4
.target sm_50
.address_size 64

.visible .entry mempool_write(.param .u64 to, .param .u32 value)
{
    .reg .b64 %address;
    .reg .b32 %word;
    ld.param.u64 %address, [to];
    ld.param.u32 %word, [value];
    cvta.to.global.u64 %address, %address;
    st.volatile.global.u32 [%address], %word;
    membar.sys;
    ret;
}

.visible .entry mempool_read(.param .u64 from, .param .u64 to)
{
    .reg .b64 %address;
    .reg .b32 %word;
    ld.param.u64 %address, [from];
    cvta.to.global.u64 %address, %address;
    ld.volatile.global.u32 %word, [%address];
    ld.param.u64 %address, [to];
    cvta.to.global.u64 %address, %address;
    st.volatile.global.u32 [%address], %word;
    membar.sys;
    ret;
}
\0"""

_OVER_ALL_LONGS = b"""\
    .reg .b32 %thread, %width, %block, %blocks;
    .reg .b64 %i, %end, %stride, %long, %address;
    .reg .pred %over;
    mov.u32 %thread, %tid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.wide.u32 %i, %block, %width;
    cvt.u64.u32 %long, %thread;
    add.u64 %i, %i, %long;
    mul.wide.u32 %stride, %width, %blocks;
    ld.param.u64 %end, [count];
"""

LONGS_IMAGE = (
    b"""\
.version 6.4
.target sm_50
.address_size 64

.visible .entry mempool_fill(.param .u64 to, .param .u64 count, .param .u64 base, .param .u64 step)
{
    .reg .b64 %to, %base, %step;
"""
    + _OVER_ALL_LONGS
    + b"""\
    ld.param.u64 %to, [to];
    ld.param.u64 %base, [base];
    ld.param.u64 %step, [step];
    cvta.to.global.u64 %to, %to;
next:
    setp.ge.u64 %over, %i, %end;
    @%over bra done;
    mad.lo.u64 %long, %i, %step, %base;
    shl.b64 %address, %i, 3;
    add.u64 %address, %address, %to;
    st.volatile.global.u64 [%address], %long;
    add.u64 %i, %i, %stride;
    bra next;
done:
    membar.sys;
    ret;
}

.visible .entry mempool_copy(.param .u64 from, .param .u64 to, .param .u64 count)
{
    .reg .b64 %from, %to, %offset;
"""
    + _OVER_ALL_LONGS
    + b"""\
    ld.param.u64 %from, [from];
    ld.param.u64 %to, [to];
    cvta.to.global.u64 %from, %from;
    cvta.to.global.u64 %to, %to;
next:
    setp.ge.u64 %over, %i, %end;
    @%over bra done;
    shl.b64 %offset, %i, 3;
    add.u64 %address, %offset, %from;
    ld.volatile.global.u64 %long, [%address];
    add.u64 %address, %offset, %to;
    st.volatile.global.u64 [%address], %long;
    add.u64 %i, %i, %stride;
    bra next;
done:
    membar.sys;
    ret;
}

.visible .entry mempool_check(.param .u64 from, .param .u64 count, .param .u64 base, .param .u64 step,
                              .param .u64 other, .param .u64 tally)
{
    .reg .b64 %from, %base, %step, %other, %tally, %right;
    .reg .pred %is;
"""
    + _OVER_ALL_LONGS
    + b"""\
    ld.param.u64 %from, [from];
    ld.param.u64 %base, [base];
    ld.param.u64 %step, [step];
    ld.param.u64 %other, [other];
    ld.param.u64 %tally, [tally];
    cvta.to.global.u64 %from, %from;
    cvta.to.global.u64 %tally, %tally;
next:
    setp.ge.u64 %over, %i, %end;
    @%over bra done;
    mad.lo.u64 %right, %i, %step, %base;
    shl.b64 %address, %i, 3;
    add.u64 %address, %address, %from;
    ld.volatile.global.u64 %long, [%address];
    setp.eq.u64 %is, %long, %right;
    @%is bra onward;
    red.global.add.u64 [%tally], 1;
    setp.ne.u64 %is, %long, 0;
    @%is bra notzero;
    red.global.add.u64 [%tally+8], 1;
notzero:
    setp.ne.u64 %is, %long, %other;
    @%is bra notother;
    red.global.add.u64 [%tally+16], 1;
notother:
    red.global.min.u64 [%tally+24], %i;
onward:
    add.u64 %i, %i, %stride;
    bra next;
done:
    membar.sys;
    ret;
}
\0"""
)

# System scope needs Pascal. The wait for the start has an end, after a second or a few: a kernel that waits for ever
# would hold the card.
ADD_IMAGE = b"""\
.version 6.4
.target sm_60
.address_size 64

.visible .entry mempool_add(.param .u64 to, .param .u64 value, .param .u64 times, .param .u64 start, .param .u64 here)
{
    .reg .b64 %address, %long, %old, %left, %start, %here, %since;
    .reg .b32 %thread, %block;
    .reg .pred %over;
    ld.param.u64 %address, [to];
    ld.param.u64 %long, [value];
    ld.param.u64 %left, [times];
    ld.param.u64 %start, [start];
    ld.param.u64 %here, [here];
    cvta.to.global.u64 %address, %address;
    cvta.to.global.u64 %start, %start;
    cvta.to.global.u64 %here, %here;
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    or.b32 %thread, %thread, %block;
    setp.ne.u32 %over, %thread, 0;
    @%over bra wait;
    st.volatile.global.u64 [%here], 1;
    membar.sys;
wait:
    mov.u64 %since, %clock64;
poll:
    ld.volatile.global.u64 %old, [%start];
    setp.ne.u64 %over, %old, 0;
    @%over bra next;
    mov.u64 %old, %clock64;
    sub.u64 %old, %old, %since;
    setp.lt.u64 %over, %old, 0x100000000;
    @%over bra poll;
    st.volatile.global.u64 [%here+8], 1;
next:
    setp.eq.u64 %over, %left, 0;
    @%over bra done;
    atom.global.sys.add.u64 %old, [%address], %long;
    sub.u64 %left, %left, 1;
    bra next;
done:
    membar.sys;
    ret;
}
\0"""


def write_parameters(pointer: int, value: int) -> bytes:
    """For WRITE: the word at `pointer` becomes `value`, an unsigned number of 32 bits."""
    return _WRITE_PARAMETERS.pack(pointer, value)


def read_parameters(source: int, destination: int) -> bytes:
    """For READ: the word at `source` is copied to `destination`."""
    return _READ_PARAMETERS.pack(source, destination)


def fill_parameters(pointer: int, count: int, base: int, step: int) -> bytes:
    """For FILL: long number i from `pointer` on becomes base + i * step."""
    return _FILL_PARAMETERS.pack(pointer, count, base, step)


def copy_parameters(source: int, destination: int, count: int) -> bytes:
    """For COPY: `count` longs."""
    return _COPY_PARAMETERS.pack(source, destination, count)


def check_parameters(pointer: int, count: int, base: int, step: int, other: int, tally: int) -> bytes:
    """For CHECK: adds to the Tally at `tally` what is not as FILL leaves it; `other` is counted apart."""
    return _CHECK_PARAMETERS.pack(pointer, count, base, step, other, tally)


def add_parameters(pointer: int, value: int, times: int, start: int, here: int) -> bytes:
    """For ADD: each thread adds `value` to the long at `pointer` so many times, atomically for the whole system.

    The first thread sets the long at `here`; all wait until the one at `start` is not zero. Who waits in vain
    sets the one after `here`, and adds all the same. Both are pinned memory.
    """
    return _ADD_PARAMETERS.pack(pointer, value, times, start, here)
