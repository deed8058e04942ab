"""Machines as captured files and answers: what a test plants in a directory, and what CUDA says there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import structs

from mempool_cli.doctor.findings import Facts
from mempool_cli.doctor.look import Look, trial
from mempool_cli.doctor.nvml import Nvml
from mempool_cli.doctor.run import examine
from mempool_cli.doctor.sources import Sources
from mempool_cli.driver import driver_source
from mempool_cli.errors import DriverWords, Problem
from mempool_cli.model import Diagnosis, DriverInfo, Finding, Libcuda
from mempool_cli.render.diagnosis import diagnosis
from mempool_cli.render.layout import folded, plain

Tree = Mapping[str, str]

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
NO_DRIVER = Problem(code="no-driver", message="the CUDA driver library, libcuda.so.1, cannot be loaded", hint="install")


def module(version: str = "580.159.04", *, kind: str = "Open Kernel Module for x86_64") -> Tree:
    text = f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build  (builder@host)\nGCC version: gcc 13.3.0\n"
    return {"/proc/driver/nvidia/version": text}


def cards(*bus_ids: str) -> Tree:
    files = {}
    for bus_id in bus_ids:
        files[f"/sys/bus/pci/devices/{bus_id}/vendor"] = "0x10de\n"
        files[f"/sys/bus/pci/devices/{bus_id}/class"] = "0x030200\n"
        files[f"/proc/driver/nvidia/gpus/{bus_id}/information"] = "Model: NVIDIA\n"
    return files


def groups(kind: str, **members: str) -> Tree:
    """IOMMU groups of this type: `groups("DMA", g14="0000:01:00.0 0000:03:00.0")`; links are written `-> target`."""
    files = {}
    for name, bus_ids in members.items():
        number = name.removeprefix("g")
        files[f"/sys/kernel/iommu_groups/{number}/type"] = f"{kind}\n"
        for bus_id in bus_ids.split():
            files[f"/sys/bus/pci/devices/{bus_id}/iommu_group"] = f"-> ../../../../kernel/iommu_groups/{number}"
    return files


NODES = dict.fromkeys(("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1"), "")
BARE_METAL = {"/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme sse2\n", "/proc/sys/kernel/osrelease": "6.8.0\n"}
VIRTUAL = {
    "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme hypervisor\n",
    "/sys/class/dmi/id/product_name": "KVM\n",
}
CONTAINER = {
    "/.dockerenv": "",
    "/proc/self/mountinfo": "611 540 0:52 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a\n",
}
TWO = cards("0000:01:00.0", "0000:03:00.0")
AMD = {
    **BARE_METAL,
    **module(),
    **NODES,
    **TWO,
    **groups("DMA-FQ", g14="0000:01:00.0", g27="0000:03:00.0"),
    "/sys/class/iommu/ivhd0/device": "",
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 amd_iommu=on quiet\n",
}


def plant(directory: Path, *trees: Tree) -> Path:
    for path, content in {key: value for tree in trees for key, value in tree.items()}.items():
        file = directory / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            file.symlink_to(content.removeprefix("-> "))
        else:
            file.write_text(content)
    return directory


def answered(spec: str = "2", *, library: str | None = None, version: str | None = "580.159.04") -> Look:
    """What CUDA answers on a machine with the devices of a simulated one, but with a real driver."""
    order = {"source": driver_source(spec).encode().decode(), "pairs": True}
    found = msgspec.json.decode(trial(msgspec.json.encode(order), lambda _: None), type=Look)
    libcuda = Libcuda(library or f"{LIBRARIES}/libcuda.so.{version}", version)
    driver = DriverInfo(kind="cuda", cuda_version="13.0", bindings="13.5.0", libcuda=libcuda)
    return structs.replace(found, driver=driver if found.driver else None, bindings="13.5.0", libcuda=libcuda)


def refused(code: int, name: str, hint: str, *, library: str = f"{LIBRARIES}/libcuda.so.580.159.04") -> Look:
    """cuInit has failed."""
    words = DriverWords("cuInit", code, name)
    problem = Problem(code="no-driver", message="the CUDA driver does not start", hint=hint, driver=words)
    version = library.rpartition(".so.")[2]
    return Look(bindings="13.5.0", libcuda=Libcuda(library, version), failure=problem)


def not_loaded() -> Look:
    return Look(bindings="13.5.0", failure=NO_DRIVER)


def examined(
    directory: Path, found: Look, nvml: Nvml | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    return examine(Facts(found, Sources(directory, environment or {}), nvml))


def text(findings: tuple[Finding, ...], *topics: str, verbose: bool = False, width: int | None = None) -> str:
    """What a user sees of these topics, or of all."""
    shown = [finding for finding in findings if not topics or finding.topic in topics]
    return plain(folded(diagnosis(Diagnosis(findings=tuple(shown)), verbose=verbose), width))
