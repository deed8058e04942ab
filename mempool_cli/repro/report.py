"""What is handed over: a JSON document to attach, and the C program."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from mempool_cli.model import Answer, Reproduction, ReproReport
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


def write_program(file: Path, bug: Bug, choices: Choices, answer: Answer) -> None:
    """The C program of the same experiment, with what was seen here in its header; MempoolError `output`."""
    result = answer.result
    done = [one for one in result.reproductions if one.bug == bug.id] if isinstance(result, ReproReport) else []
    pair = next((one for one in done if one.accessor is not None), None)
    owner = pair.owner if pair and choices.owner is not None else None
    accessor = pair.accessor if pair and choices.accessor is not None else None
    text = c_program(
        bug,
        seen_on=_seen_on(answer, done),
        numbers=numbers_of(bug, choices),
        owner=-1 if owner is None else owner,
        accessor=-1 if accessor is None else accessor,
    )
    write_text(file, text)


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
