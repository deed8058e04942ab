"""NVIDIA's GPUs on the PCI bus, as the kernel lists them for everybody."""

from __future__ import annotations

from mempool_cli.doctor.sources import Sources

_DEVICES = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_DISPLAY = "0x03"


def gpus(sources: Sources) -> tuple[str, ...]:
    """Their bus ids."""
    return tuple(
        name
        for name in sources.names(_DEVICES)
        if sources.text(f"{_DEVICES}/{name}/vendor") == _NVIDIA
        and (sources.text(f"{_DEVICES}/{name}/class") or "").startswith(_DISPLAY)
    )


def iommu_group(sources: Sources, bus_id: str) -> str | None:
    """The number of the IOMMU group that a device is in."""
    return sources.link(f"{_DEVICES}/{bus_id}/iommu_group")
