"""Memory of the host that a program under test and its simulated machine have in common."""

from __future__ import annotations

import mmap
import os

from mempool_cli.driver.sim.allocation import PAGE, Allocation, Page
from mempool_cli.driver.sim.pool import SimPool


class SharedAllocation(Allocation):
    """An allocation whose bytes are those of a file, which the program maps as well."""

    def __init__(self, start: int, size: int, pool: SimPool | None) -> None:
        super().__init__(start, size, pool)
        self.file = os.fdopen(os.memfd_create("mempool-standin"), "r+b")
        self.file.truncate(size)
        self._memory = mmap.mmap(self.file.fileno(), size)

    def page(self, number: int) -> Page:
        return self._memory[number * PAGE : (number + 1) * PAGE]

    def _keep(self, number: int, page: Page) -> None:
        self._put(number, 0, page if isinstance(page, bytes) else page.bytes())

    def _put(self, page: int, begin: int, piece: bytes) -> None:
        """Only these bytes: the program may be writing others of the page."""
        at = page * PAGE + begin
        self._memory[at : at + len(piece)] = piece
