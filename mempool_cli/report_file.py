"""A report to attach: one JSON document with the result, the devices and the machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from mempool_cli import __version__
from mempool_cli.errors import MempoolError
from mempool_cli.machine import facts, redacted
from mempool_cli.model import Answer, DeviceDetail, envelope
from mempool_cli.whole_file import unwritable, write_whole


class ReportFile:
    """A file that can be written again and again, as more is found. The machine is looked at once."""

    def __init__(self, file: Path, command: str, *, redact: bool) -> None:
        self._file = file
        self._command = command
        self._redact = redact
        self._machine: dict[str, Any] | None = None

    def write(self, answer: Answer, devices: Sequence[DeviceDetail], **more: Any) -> None:
        """The whole document, with `more` in it; MempoolError `output` when it cannot be written."""
        self._machine = self._machine or facts()
        document: dict[str, Any] = {
            "schema": "mempool-report/1",
            "mempool": __version__,
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "result": envelope(self._command, answer),
            **more,
            "devices": msgspec.to_builtins(devices),
            "machine": self._machine,
        }
        write_text(self._file, json.dumps(redacted(document) if self._redact else document, indent=1) + "\n")


def check_writable(*files: Path | None) -> None:
    """MempoolError `output` for one that cannot be written, before anything is run."""
    for file in files:
        why = unwritable(file) if file else None
        if why:
            raise MempoolError("output", f"{file} cannot be written: {why}; nothing was run")


def write_text(file: Path, text: str) -> None:
    """The file, whole or not at all; MempoolError `output` when it cannot be written."""
    try:
        write_whole(file, text)
    except OSError as error:
        raise MempoolError("output", f"{file} cannot be written: {error.strerror}") from error
