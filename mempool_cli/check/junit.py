"""The report as JUnit XML, which CI servers show: a suite a check, a case a device or pair."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from mempool_cli import __version__
from mempool_cli.errors import Problem
from mempool_cli.model import Answer, CheckCase, CheckReport, CheckResult
from mempool_cli.report_file import write_text

_KINDS = {"failed": Failure, "error": Error, "skipped": Skipped}


def write_junit(file: Path, answer: Answer, report: CheckReport) -> None:
    """Writes the file, whole or not at all; MempoolError `output`."""
    xml: Any = JUnitXml("mempool check")
    for check in report.checks:
        xml.add_testsuite(_suite(check, answer, report))
    if answer.failure:
        xml.add_testsuite(_suite(_ended_early(answer.failure), answer, report))
    xml.update_statistics()
    # Known to junitparser and to no common schema.
    xml._elem.attrib.pop("skipped", None)
    write_text(file, xml.tostring().decode() + "\n")


def begin_junit(file: Path) -> None:
    """Until the checks have ended the file says that they have not: what an earlier run left there was a lie by now.

    Nothing where it is no plain file, a pipe say, which takes one document. MempoolError `output`.
    """
    if file.exists() and not file.is_file():
        return
    report = CheckReport(devices=(), policy=None, skips_allowed=False, checks=())
    failure = Problem(code="terminated", message="the checks have not ended, or the process was killed")
    write_junit(file, Answer(result=report, failure=failure), report)


def _ended_early(failure: Problem) -> CheckResult:
    """What was not run, as an error: a server that reads the file only must not take it for a pass."""
    case = CheckCase(name="all checks are run", outcome="error", why=failure.message)
    return CheckResult(id="run", title="", of_pairs=False, outcome="error", seconds=0.0, cases=(case,))


def _suite(check: CheckResult, answer: Answer, report: CheckReport) -> TestSuite:
    suite: Any = TestSuite(f"mempool.{check.id}")
    suite.hostname = _printable(platform.node())
    suite.timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    for name, value in _properties(answer, report).items():
        suite.add_property(name, _printable(value))
    rest = max(0.0, check.seconds - sum(case.seconds or 0.0 for case in check.cases)) / max(1, len(check.cases))
    for case in check.cases:
        suite.add_testcase(_case(check, case, rest))
    suite.update_statistics()
    suite.time = round(suite.time, 3)
    return cast(TestSuite, suite)


def _case(check: CheckResult, case: CheckCase, rest: float) -> TestCase:
    found = TestCase(case.name, f"mempool.{check.id}", round((case.seconds or 0.0) + rest, 3))
    kind = _KINDS.get(case.outcome)
    if kind:
        result: Any = kind(_printable(case.why), case.outcome)
        result.text = str(case.driver) if case.driver else None
        found.result = [result]
    return found


def _properties(answer: Answer, report: CheckReport) -> dict[str, str]:
    driver = answer.driver
    found = {"mempool": __version__, "policy": report.policy or ""}
    if driver:
        found |= {"driver": driver.kind, "cuda": driver.cuda_version, "bindings": driver.bindings or ""}
        found |= {"simulated machine": driver.sim} if driver.sim else {}
        found |= {"kernel module": driver.kernel_module.version} if driver.kernel_module else {}
    for device in report.devices:
        found[f"device {device.ordinal}"] = f"{device.name}, {device.pci_bus_id}, {device.uuid}"
    return found


def _printable(text: str) -> str:
    """XML cannot carry control characters, nor bytes that were no UTF-8."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
