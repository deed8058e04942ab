"""The diagnosis: every fact gathered, and every finding about it."""

from __future__ import annotations

from mempool_cli.doctor import devices, driver, host, iommu, nvml, p2p
from mempool_cli.doctor.findings import Facts, ok
from mempool_cli.doctor.look import look
from mempool_cli.doctor.sources import Sources
from mempool_cli.driver import DriverSource
from mempool_cli.model import Answer, Diagnosis, Finding


def diagnose(source: DriverSource) -> Answer:
    """Why this machine cannot, or that it can."""
    facts = gather(source)
    return Answer(driver=facts.look.driver, result=Diagnosis(findings=examine(facts)))


def gather(source: DriverSource, *, pairs: bool = False) -> Facts:
    """The facts; of a simulated machine what its driver says, and nothing of this host."""
    found = look(source, pairs=pairs)
    return Facts(found) if source.sim is not None else Facts(found, Sources(), nvml.look())


def examine(facts: Facts) -> tuple[Finding, ...]:
    """What the facts mean, from the driver to the host, in the order in which each builds on those before."""
    if facts.sources is None:
        rest = ok("host", "a simulated machine has no libcuda, IOMMU, container or hypervisor")
        return (driver.start(facts), *devices.findings(facts), *p2p.findings(facts), rest)
    parts = (driver.findings, devices.findings, p2p.findings, iommu.findings, host.findings)
    return tuple(finding for part in parts for finding in part(facts))
