"""Writing to the standard streams, so that nothing is lost, crashes, or fails later at interpreter exit."""

from __future__ import annotations

import errno
import os
import select
import time
from typing import BinaryIO, Literal, TextIO

from mempool_cli.errors import MempoolError


def wants_colour(stream: TextIO | None, setting: Literal["auto", "always", "never"]) -> bool:
    """Whether to write escapes; `auto` goes by the terminal, NO_COLOR and TERM."""
    if setting != "auto":
        return setting == "always"
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width(stream: TextIO | None) -> int | None:
    """The columns of the terminal, 80 if it does not say; None for anything else. COLUMNS is ignored."""
    if stream is None or not is_terminal(stream):
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is open and a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def pause(stream: TextIO | None, seconds: float) -> None:
    """Waits so long. Raises BrokenPipeError when the reader of the stream goes away meanwhile."""
    poll = select.poll()
    try:
        assert stream is not None
        poll.register(stream.fileno(), 0)  # an error and a hang-up are always told
    except (OSError, ValueError):
        time.sleep(seconds)
        return
    if poll.poll(seconds * 1000):
        raise BrokenPipeError(errno.EPIPE, "the reader went away")


def write_result(stream: TextIO | None, text: str, *, hint: str | None = None) -> None:
    """Writes and flushes. Raises BrokenPipeError when the reader went away, else MempoolError `output`."""
    try:
        _write(stream, text)
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise MempoolError("output", f"could not write the result: {reason}", hint=hint) from error


def write_note(stream: TextIO | None, text: str) -> None:
    """Writes and flushes; a stream that takes nothing is no reason to fail."""
    try:
        _write(stream, text)
    except OSError:
        return


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None or stream.closed:
        raise OSError(errno.EBADF, "the stream is closed")
    encoding = stream.encoding or "utf-8"
    data = text.encode(encoding, "backslashreplace")
    try:
        if hasattr(stream, "buffer"):
            stream.flush()
            _write_all(stream.buffer, data)
        else:
            stream.write(data.decode(encoding))
        stream.flush()
    except OSError:
        _abandon(stream)
        raise


def _write_all(stream: BinaryIO, data: bytes) -> None:
    """Writes on after a partial write, of which a text stream loses the rest without a word (PYTHONUNBUFFERED)."""
    rest = memoryview(data)
    while rest:
        written = stream.write(rest)
        if not written:
            raise BlockingIOError(errno.EAGAIN, "the stream takes no more")
        rest = rest[written:]


def _abandon(stream: TextIO) -> None:
    """Lets what is still buffered go nowhere: at exit Python flushes again, would fail again and exit 120."""
    try:
        descriptor = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
    except (OSError, ValueError):
        return
