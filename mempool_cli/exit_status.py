"""The exit statuses, and which error code has which. Imports nothing: every start of the program needs it."""

from __future__ import annotations

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
    # a finding
    "affected": FINDING,
    "data-path": FINDING,
    "check-failed": FINDING,
    "different": FINDING,
    # the command line or an input file is wrong
    "usage": USAGE,
    "unknown-pool": USAGE,
    "unknown-device": USAGE,
    "bad-name": USAGE,
    "name-taken": USAGE,
    "owner-access": USAGE,
    "default-pool": USAGE,
    "program-pool": USAGE,
    "host-pool": USAGE,
    "input-file": USAGE,
    "unknown-bug": USAGE,
    # this machine cannot
    "no-bindings": MACHINE,
    "no-driver": MACHINE,
    "driver-too-old": MACHINE,
    "missing-function": MACHINE,
    "no-device": MACHINE,
    "no-pool-support": MACHINE,
    "not-peer-capable": MACHINE,
    "not-initialised": MACHINE,
    "machine-unfit": MACHINE,
    # the driver refused, or did not do what it said
    "driver-refused": DRIVER,
    "out-of-memory": DRIVER,
    "not-applied": DRIVER,
    "not-cleared": DRIVER,
    "unreadable-cells": DRIVER,
    "unreadable-attributes": DRIVER,
    "trial-failed": DRIVER,
    "check-error": DRIVER,
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


class Terminated(BaseException):
    """SIGTERM arrived: raised, so that every cleanup on the way out runs."""
