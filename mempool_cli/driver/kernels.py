"""The package's own kernels, which show whether a device may touch memory: only a kernel can."""

from __future__ import annotations

import struct

WRITE = "mempool_write"
READ = "mempool_read"
WORD_BYTES = 4

_WRITE_PARAMETERS = struct.Struct("<QI")
_READ_PARAMETERS = struct.Struct("<QQ")

# An old target, which every card from Maxwell on can compile; volatile, so that nothing is cached on the way.
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


def write_parameters(pointer: int, value: int) -> bytes:
    """For WRITE: the word at `pointer` becomes `value`, an unsigned number of 32 bits."""
    return _WRITE_PARAMETERS.pack(pointer, value)


def read_parameters(source: int, destination: int) -> bytes:
    """For READ: the word at `source` is copied to `destination`."""
    return _READ_PARAMETERS.pack(source, destination)
