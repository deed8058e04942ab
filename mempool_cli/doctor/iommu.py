"""The IOMMU, which stands in the way of P2P where it translates, and what its groups tell of PCIe ACS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from mempool_cli.doctor import pci
from mempool_cli.doctor.findings import Facts, ok, warn
from mempool_cli.doctor.host import hypervisor_name
from mempool_cli.doctor.sources import Sources
from mempool_cli.model import Finding

Mode = Literal["off", "passthrough", "translated", "other"]

_GROUPS = "/sys/kernel/iommu_groups"
_UNITS = (("ivhd", "AMD-Vi"), ("dmar", "Intel VT-d"), ("smmu", "Arm SMMU"))


def findings(facts: Facts) -> Iterator[Finding]:
    """The mode, and with several cards what the groups say of ACS."""
    assert facts.sources is not None
    yield iommu(facts.sources)
    cards = pci.gpus(facts.sources)
    if len(cards) > 1:
        yield acs(facts.sources, cards)


def mode(sources: Sources) -> Mode | None:
    """How the IOMMU treats the GPUs, or all devices where they have no group; None when that cannot be read."""
    groups = [group for card in pci.gpus(sources) if (group := pci.iommu_group(sources, card))]
    names = groups or sources.names(_GROUPS)
    kinds = {kind for name in names if (kind := sources.text(f"{_GROUPS}/{name}/type"))}
    if not names:
        return "off" if sources.exists(_GROUPS) else None
    if any(kind.startswith("DMA") for kind in kinds):
        return "translated"
    if not kinds:
        return None
    return "passthrough" if kinds == {"identity"} else "other"


def iommu(sources: Sources) -> Finding:
    """The mode. Translated, on bare metal and with several cards, it is a suspect."""
    found, maker = mode(sources), _maker(sources)
    evidence = _evidence(sources)
    if found is None:
        return ok("iommu", "its mode cannot be read", evidence=evidence)
    text = {
        "off": "no groups: it is off, or not visible from here",
        "passthrough": f"{maker} passes addresses through",
        "translated": f"{maker} translates addresses",
        "other": f"{maker} is in another mode",
    }[found]
    if found != "translated" or hypervisor_name(sources) or len(pci.gpus(sources)) < 2:
        return ok("iommu", text, evidence=evidence)
    hint = "`mempool verify` shows whether data gets through; if it does not, put iommu=pt on the kernel's command line"
    return warn("iommu", f"{text}: P2P over PCIe can be slow, hang or lose data", evidence=evidence, hint=hint)


def _maker(sources: Sources) -> str:
    units = sources.names("/sys/class/iommu")
    return next((name for prefix, name in _UNITS for unit in units if unit.startswith(prefix)), "the IOMMU")


def _evidence(sources: Sources) -> list[str]:
    lines = []
    for card in pci.gpus(sources):
        group = pci.iommu_group(sources, card)
        kind = sources.text(f"{_GROUPS}/{group}/type") if group else None
        lines.append(f"{card}: group {group or 'none'}, type {kind or 'not readable'}")
    words = re.findall(r"\S*iommu\S*", sources.text("/proc/cmdline") or "")
    return [*lines, f"kernel command line: {' '.join(words) or 'nothing about it'}"]


def acs(sources: Sources, cards: tuple[str, ...]) -> Finding:
    """What groups tell of ACS, and no more: the bridges' own setting can be read by root alone."""
    groups: dict[str, list[str]] = {}
    for card in cards:
        if group := pci.iommu_group(sources, card):
            groups.setdefault(group, []).append(card)
    text = "cannot be read without privileges"
    shared = [f"group {group}: {', '.join(members)}" for group, members in groups.items() if len(members) > 1]
    if shared:
        text += "; cards that share an IOMMU group are not isolated from each other"
    elif groups:
        text += "; each card is in an IOMMU group of its own"
    return ok("acs", text, evidence=shared, hint="as root `lspci -vvv | grep ACSCtl` shows it, bridge by bridge")
