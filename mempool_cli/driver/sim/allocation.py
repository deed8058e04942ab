"""The bytes of an allocation. Only pages that were written exist: an allocation can be as large as a card."""

from __future__ import annotations

from collections.abc import Iterator

from mempool_cli.driver.sim.pool import SimPool

_PAGE = 1 << 16
_ZERO_PAGE = bytes(_PAGE)


class Allocation:
    """`size` bytes from `start` on, zero until they are written."""

    def __init__(self, start: int, size: int, pool: SimPool) -> None:
        self.start = start
        self.size = size
        self.pool = pool
        self._pages: dict[int, bytes] = {}

    def holds(self, pointer: int, size: int) -> bool:
        """Whether all of these bytes are its own."""
        return self.start <= pointer and pointer + size <= self.start + self.size

    def read(self, pointer: int, size: int) -> bytes:
        """`size` bytes from `pointer` on."""
        return b"".join(
            self._pages.get(page, _ZERO_PAGE)[begin:end] for page, begin, end in _pieces(pointer - self.start, size)
        )

    def write(self, pointer: int, data: bytes) -> None:
        """These bytes to `pointer`."""
        written = 0
        for page, begin, end in _pieces(pointer - self.start, len(data)):
            piece = data[written : written + end - begin]
            written += end - begin
            self._put(page, begin, piece)

    def fill(self, pointer: int, value: int, size: int) -> None:
        """`size` times the same byte."""
        full = bytes([value]) * _PAGE
        for page, begin, end in _pieces(pointer - self.start, size):
            self._put(page, begin, full[: end - begin])

    def copy(self, pointer: int, source: Allocation, origin: int, size: int) -> None:
        """`size` bytes at `origin` of another allocation to `pointer`."""
        for at in range(0, size, _PAGE):
            self.write(pointer + at, source.read(origin + at, min(_PAGE, size - at)))

    def _put(self, page: int, begin: int, piece: bytes) -> None:
        if len(piece) < _PAGE:
            old = self._pages.get(page, _ZERO_PAGE)
            piece = old[:begin] + piece + old[begin + len(piece) :]
        self._pages[page] = piece


def _pieces(offset: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Page, begin and end within it, of every page that the bytes touch."""
    end = offset + size
    while offset < end:
        page, begin = divmod(offset, _PAGE)
        length = min(_PAGE - begin, end - offset)
        yield page, begin, begin + length
        offset += length
