"""What can go wrong: a stable code, what happened, the driver's words, what to try, and the exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from mempool_cli.model import Result

OK = 0
FINDING = 1
USAGE = 2
MACHINE = 3
DRIVER = 4
HOST = 5
INCONCLUSIVE = 6
INTERNAL = 70
OUTPUT = 74
INTERRUPTED = 130
READER_GONE = 141
TERMINATED = 143

EXIT_STATUS: dict[str, int] = {
    # the command line or an input file is wrong
    "usage": USAGE,
    "unknown-pool": USAGE,
    "unknown-device": USAGE,
    "bad-name": USAGE,
    "name-taken": USAGE,
    "owner-access": USAGE,
    "default-pool": USAGE,
    "host-pool": USAGE,
    "input-file": USAGE,
    # this machine cannot
    "no-bindings": MACHINE,
    "no-driver": MACHINE,
    "driver-too-old": MACHINE,
    "missing-function": MACHINE,
    "no-device": MACHINE,
    "no-pool-support": MACHINE,
    "not-peer-capable": MACHINE,
    # the driver refused, or did not do what it said
    "driver-refused": DRIVER,
    "out-of-memory": DRIVER,
    "not-applied": DRIVER,
    "not-cleared": DRIVER,
    "unreadable-cells": DRIVER,
    # the host: a session or a program
    "no-session": HOST,
    "session-died": HOST,
    "session-busy": HOST,
    "session-start": HOST,
    "session-stop": HOST,
    "outcome-unknown": HOST,
    "other-version": HOST,
    "other-driver": HOST,
    "other-environment": HOST,
    "runtime-directory": HOST,
    "bad-request": HOST,
    # nothing could be tested
    "inconclusive": INCONCLUSIVE,
    "internal": INTERNAL,
    "output": OUTPUT,
    "interrupted": INTERRUPTED,
    "terminated": TERMINATED,
}
"""Every error code and its exit status; docs/exit-status.md lists the same, and a test compares the two."""


class DriverWords(msgspec.Struct, frozen=True):
    """A driver call that failed, as the driver names it: `cuMemPoolSetAccess`, 101, `CUDA_ERROR_INVALID_DEVICE`."""

    call: str
    code: int
    name: str


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
        super().__init__(f"{call} = {name} ({code})")
        self.words = DriverWords(call=call, code=code, name=name)
