"""What can go wrong: a stable code, what happened, the driver's words, what to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mempool_cli.exit_status import EXIT_STATUS, INTERNAL

if TYPE_CHECKING:
    from mempool_cli.model import Result


class DriverWords(msgspec.Struct, frozen=True):
    """A driver call that failed, as the driver names it: `cuMemPoolSetAccess`, 101, `CUDA_ERROR_INVALID_DEVICE`."""

    call: str
    code: int
    name: str

    def __str__(self) -> str:
        """As a C programmer would log it: `cuMemPoolSetAccess = CUDA_ERROR_INVALID_DEVICE (101)`."""
        return f"{self.call} = {self.name} ({self.code})"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One failure, as a user meets it. `code` is a key of EXIT_STATUS."""

    code: str
    message: str
    hint: str | None = None
    driver: DriverWords | None = None

    @property
    def exit(self) -> int:
        """The exit status of this failure; an unknown code is an internal error."""
        return EXIT_STATUS.get(self.code, INTERNAL)


class MempoolError(Exception):
    """A failure that a user can act on; `result` holds what was read before or after it, if anything."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        driver: DriverWords | None = None,
        result: Result | None = None,
    ) -> None:
        super().__init__(message)
        self.problem = Problem(code=code, message=message, hint=hint, driver=driver)
        self.result = result


class DriverError(Exception):
    """A driver call answered something other than SUCCESS."""

    def __init__(self, call: str, name: str, code: int) -> None:
        self.words = DriverWords(call=call, code=code, name=name)
        super().__init__(str(self.words))

    @property
    def problem(self) -> Problem:
        """The failure as a user meets it, when nothing more is known than which call was refused."""
        return Problem(code="driver-refused", message=f"the driver refused {self.words.call}", driver=self.words)


def ended_by(error: BaseException, rest: str = "") -> Problem:
    """What is told of a KeyboardInterrupt or Terminated, with the rest of the sentence."""
    code, name = ("interrupted", "SIGINT") if isinstance(error, KeyboardInterrupt) else ("terminated", "SIGTERM")
    return Problem(code=code, message=f"ended by {name}{rest}")
