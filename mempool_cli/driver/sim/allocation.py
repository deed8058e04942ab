"""The bytes of an allocation. Only pages that were written exist: an allocation can be as large as a card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mempool_cli.driver.longs import LONG_BYTES, Tally, compare, series
from mempool_cli.driver.sim.pool import SimPool

PAGE = 1 << 16
_LONGS = PAGE // LONG_BYTES
_U64 = (1 << 64) - 1
_ZERO_PAGE = bytes(PAGE)


class _Series(NamedTuple):
    """A page whose long number i is base + i * step: what a kernel fills memory with is kept as it was meant."""

    base: int
    step: int

    def bytes(self, count: int = _LONGS) -> bytes:
        """The first `count` longs."""
        return series(self.base, self.step, count)

    def after(self, count: int) -> _Series:
        """The same from long number `count` on."""
        return _Series((self.base + count * self.step) & _U64, self.step)


Page = bytes | _Series


class Allocation:
    """`size` bytes from `start` on, zero until they are written. `pool` is None for pinned memory of the host."""

    def __init__(self, start: int, size: int, pool: SimPool | None) -> None:
        self.start = start
        self.size = size
        self.pool = pool
        self._pages: dict[int, Page] = {}

    def lets(self, device: int) -> bool:
        """Whether a kernel on that device may touch it."""
        return self.pool is None or self.pool.lets(device)

    @property
    def on_host(self) -> bool:
        """Whether the processor may touch it."""
        return self.pool is None or self.pool.on_host

    @property
    def device(self) -> int | None:
        """The device whose memory it is, if it is one's."""
        return self.pool.owner if self.pool else None

    def holds(self, pointer: int, size: int) -> bool:
        """Whether all of these bytes are its own."""
        return self.start <= pointer and pointer + size <= self.start + self.size

    def read(self, pointer: int, size: int) -> bytes:
        """`size` bytes from `pointer` on."""
        return b"".join(self._bytes(page)[begin:end] for page, begin, end in _pieces(pointer - self.start, size))

    def write(self, pointer: int, data: bytes) -> None:
        """These bytes to `pointer`."""
        written = 0
        for page, begin, end in _pieces(pointer - self.start, len(data)):
            piece = data[written : written + end - begin]
            written += end - begin
            self._put(page, begin, piece)

    def fill(self, pointer: int, value: int, size: int) -> None:
        """`size` times the same byte."""
        full = bytes([value]) * PAGE
        for page, begin, end in _pieces(pointer - self.start, size):
            self._put(page, begin, full[: end - begin])

    def copy(self, pointer: int, source: Allocation, origin: int, size: int) -> None:
        """`size` bytes at `origin` of another allocation to `pointer`."""
        if (pointer - self.start) % PAGE or (origin - source.start) % PAGE or size % PAGE:
            self.write(pointer, source.read(origin, size))
            return
        first, other = (pointer - self.start) // PAGE, (origin - source.start) // PAGE
        for page in range(size // PAGE):
            self._keep(first + page, source.page(other + page))

    # --- longs: aligned numbers of 64 bits ---

    def fill_longs(self, pointer: int, count: int, base: int, step: int) -> None:
        """Long number i from `pointer` on becomes base + i * step."""
        rest = _Series(base, step)
        for page, begin, end in _pieces(pointer - self.start, count * LONG_BYTES):
            longs = (end - begin) // LONG_BYTES
            if longs == _LONGS:
                self._keep(page, rest)
            else:
                self._put(page, begin, rest.bytes(longs))
            rest = rest.after(longs)

    def tally(self, pointer: int, count: int, base: int, step: int, other: int) -> Tally:
        """What of it is not as `fill_longs` leaves it; `other` is counted apart."""
        found = Tally()
        expected, index = _Series(base, step), 0
        for page, begin, end in _pieces(pointer - self.start, count * LONG_BYTES):
            longs = (end - begin) // LONG_BYTES
            if longs < _LONGS or self._pages.get(page) != expected:
                piece = compare(self._bytes(page)[begin:end], expected.bytes(longs), other)
                found = found.and_after(index, piece)
            expected, index = expected.after(longs), index + longs
        return found

    def page(self, number: int) -> Page:
        """One page, as another allocation may keep it."""
        return self._pages.get(number, _ZERO_PAGE)

    def _bytes(self, number: int) -> bytes:
        page = self.page(number)
        return page if isinstance(page, bytes) else page.bytes()

    def _put(self, page: int, begin: int, piece: bytes) -> None:
        if len(piece) < PAGE:
            old = self._bytes(page)
            piece = old[:begin] + piece + old[begin + len(piece) :]
        self._keep(page, piece)

    def _keep(self, number: int, page: Page) -> None:
        self._pages[number] = page


def _pieces(offset: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Page, begin and end within it, of every page that the bytes touch."""
    end = offset + size
    while offset < end:
        page, begin = divmod(offset, PAGE)
        length = min(PAGE - begin, end - offset)
        yield page, begin, begin + length
        offset += length
