"""What children do in these tests."""

from __future__ import annotations

import os
import signal
import sys
import time

from mempool_cli.child import Announce


def echo(payload: bytes, announce: Announce) -> bytes:
    """Returns what it got, after a call and much output."""
    announce("cuInit()")
    print("said")
    return payload


def crash(payload: bytes, announce: Announce) -> bytes:
    """Is killed by the signal that the payload names."""
    announce("cuMemPoolGetAccess(0x1234, device 0)")
    os.kill(os.getpid(), signal.Signals[payload.decode()])
    time.sleep(60)
    return b""


def hang(payload: bytes, announce: Announce) -> bytes:
    """Does not end."""
    announce("cuMemPoolCreate(device 0, max_size 1)")
    time.sleep(600)
    return b""


def exit_(payload: bytes, announce: Announce) -> bytes:
    """Ends without a result."""
    sys.exit(int(payload))


def fail(payload: bytes, announce: Announce) -> bytes:
    """Fails by a fault of ours."""
    raise RuntimeError("out of order")


def core(payload: bytes, announce: Announce) -> bytes:
    """The largest core that would be dumped."""
    import resource

    return str(resource.getrlimit(resource.RLIMIT_CORE)[0]).encode()


def lingers(payload: bytes, announce: Announce) -> bytes:
    """Returns, and then takes its time to go."""
    import atexit

    atexit.register(time.sleep, 600)
    return payload


def variable(payload: bytes, announce: Announce) -> bytes:
    """What a variable of the environment is, empty without it."""
    return os.environ.get(payload.decode(), "").encode()
