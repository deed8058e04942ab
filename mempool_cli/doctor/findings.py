"""What findings are made from, and the three kinds of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mempool_cli.doctor.look import Look
from mempool_cli.doctor.nvml import Nvml
from mempool_cli.doctor.sources import Sources
from mempool_cli.errors import DriverWords, Problem
from mempool_cli.model import Finding


class Facts(NamedTuple):
    """All that is known of a machine. `sources` and `nvml` are None for a simulated one."""

    look: Look
    sources: Sources | None = None
    nvml: Nvml | None = None

    @property
    def works(self) -> bool:
        """CUDA has started, and answers."""
        return self.look.failure is None

    @property
    def refused(self) -> Problem | None:
        """The failure, where CUDA had started: a call after cuInit."""
        failure = self.look.failure
        return failure if failure and failure.driver and failure.driver.call != "cuInit" else None


def ok(topic: str, text: str, *, evidence: Iterable[str] = (), hint: str | None = None) -> Finding:
    """As it should be, or only good to know."""
    return Finding(topic=topic, level="ok", text=text, evidence=tuple(evidence), hint=hint)


def warn(topic: str, text: str, *, evidence: Iterable[str] = (), hint: str | None = None) -> Finding:
    """Something that may cause trouble, or that this machine cannot do."""
    return Finding(topic=topic, level="warn", text=text, evidence=tuple(evidence), hint=hint)


def fail(
    topic: str,
    text: str,
    *,
    evidence: Iterable[str] = (),
    hint: str | None = None,
    code: str | None = None,
    driver: DriverWords | None = None,
) -> Finding:
    """Why this machine cannot. `code`: the error that a command would end with."""
    return Finding(topic=topic, level="fail", text=text, evidence=tuple(evidence), hint=hint, code=code, driver=driver)
