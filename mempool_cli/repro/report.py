"""What is handed over: a JSON document to attach, and the C program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from mempool_cli.devices import resolve_device
from mempool_cli.model import Answer, DeviceDetail, Reproduction, ReproReport
from mempool_cli.report_file import ReportFile, write_text
from mempool_cli.repro.c_writer import c_program
from mempool_cli.repro.language import Bug
from mempool_cli.repro.run import Choices, Reproduced, numbers_of


def write_report(file: Path, found: Reproduced, *, redact: bool) -> None:
    """One JSON document; MempoolError `output` when it cannot be written."""
    calls = [
        {
            "bug": one.reproduction.bug,
            "variant": one.reproduction.variant,
            "arm": one.trial.arm,
            "history": one.trial.history,
            "repeat": one.trial.repeat,
            "calls": list(one.calls),
        }
        for one in found.calls
    ]
    ReportFile(file, "repro", redact=redact).write(found.answer, found.devices, calls=calls)


def write_program(file: Path, bug: Bug, choices: Choices, found: Reproduced) -> None:
    """The C program of the same experiment, with what was seen here in its header; MempoolError `output`."""
    result = found.answer.result
    done = [one for one in result.reproductions if one.bug == bug.id] if isinstance(result, ReproReport) else []
    text = c_program(
        bug,
        seen_on=_seen_on(found.answer, done),
        numbers=numbers_of(bug, choices),
        owner=_ordinal(choices.owner, found.devices),
        accessor=_ordinal(choices.accessor, found.devices),
        limit=math.ceil(choices.limit),
        file=file.name,
    )
    write_text(file, text)


def _ordinal(word: str | None, devices: Sequence[DeviceDetail]) -> int:
    """The device that was asked for; -1 for any. Where no device could be seen, only an ordinal says which it is."""
    if word is None or not (devices or word.isdecimal()):
        return -1
    return resolve_device(word, devices) if devices else int(word)


def _seen_on(answer: Answer, done: Sequence[Reproduction]) -> list[str]:
    driver = answer.driver
    if driver is None or not done:
        return ["nothing yet: it was written on a machine where it could not be run"]
    module = f", kernel module {driver.kernel_module.version}" if driver.kernel_module else ""
    machine = f"simulated machine {driver.sim}" if driver.sim else f"driver for CUDA {driver.cuda_version}{module}"
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    return [f"{machine}, {day}: {one.variant} pools{_pair(one)}: {one.verdict}: {one.why}" for one in done]


def _pair(one: Reproduction) -> str:
    if one.accessor is None:
        return ""
    return f" of device {one.owner}, device {one.accessor}" if one.owner is not None else f", device {one.accessor}"
