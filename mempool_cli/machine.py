"""The facts about a machine that a driver team asks for. Reads only; whatever cannot be read is null."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SECONDS = 20
MPS_PROCESS = "nvidia-cuda-mps"
"""How the names of the processes of MPS begin."""

_VARIABLES = re.compile(r"(CUDA|NVIDIA|NCCL|MPS|PYTORCH_|CUPY_|LD_PRELOAD|LD_LIBRARY_PATH|MEMPOOL_SIM)")
_OUR_WORDS = ("schema", "kind", "level", "code", "topic")
_SMI = {
    "query": ["-q"],
    "topology": ["topo", "-m"],
}


def facts() -> dict[str, Any]:
    """Kernel, hypervisor, IOMMU, MPS, environment, and what nvidia-smi says of the cards where there is one."""
    smi = {name: _output(["nvidia-smi", *words]) for name, words in _SMI.items()}
    query = smi["query"] or ""
    return {
        "host_name": platform.node(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "kernel_module": _text("/proc/driver/nvidia/version"),
        "hypervisor": _hypervisor(),
        "iommu": {
            "groups": _count("/sys/kernel/iommu_groups"),
            "command_line": " ".join(re.findall(r"\S*iommu\S*", _text("/proc/cmdline") or "")) or None,
        },
        "mps": mps_runs(),
        "mig": re.findall(r"MIG Mode\s+Current\s+: (.+)", query),
        "vbios": re.findall(r"VBIOS Version\s+: (.+)", query),
        "gsp_firmware": re.findall(r"GSP Firmware Version\s+: (.+)", query),
        "environment": {name: value for name, value in sorted(os.environ.items()) if _VARIABLES.match(name)},
        "nvidia_smi": smi,
    }


def redacted(value: Any) -> Any:
    """The same without UUIDs, bus ids, serial numbers and the host name, in whatever text they stand.

    Our own words stay as they are, whatever the host is called.
    """
    if isinstance(value, Mapping):
        return {
            key: "(redacted)" if key == "host_name" else each if key in _OUR_WORDS else redacted(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(each) for each in value]
    return _without_names(value) if isinstance(value, str) else value


def _without_names(text: str) -> str:
    for pattern in (
        r"(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]*",
        r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b",
        r"\b(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]\b",
        r"(?<=Serial Number)\s+: .+",
        r"\b[0-9a-f]{32}\b",
    ):
        text = re.sub(pattern, "(redacted)", text)
    name = platform.node()
    return re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "(redacted)", text) if name else text


def _output(command: list[str]) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def _count(path: str) -> int | None:
    try:
        return len(list(Path(path).iterdir()))
    except OSError:
        return None


def _hypervisor() -> str | None:
    named = _text("/sys/hypervisor/type") or _text("/sys/class/dmi/id/product_name")
    flag = re.search(r"^flags\s*:.*\bhypervisor\b", _text("/proc/cpuinfo") or "", re.MULTILINE)
    return named or ("yes" if flag else None)


def mps_runs() -> bool | None:
    """Whether an MPS control daemon runs that this user can see."""
    try:
        names = [_text(f"/proc/{pid.name}/comm") for pid in Path("/proc").iterdir() if pid.name.isdigit()]
    except OSError:
        return None
    return any(name and name.startswith(MPS_PROCESS) for name in names)
