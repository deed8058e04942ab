"""What the driver runs on: container, virtual machine, WSL, confidential computing, NVSwitch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mempool_cli.doctor.findings import Facts, ok, warn
from mempool_cli.doctor.sources import Sources
from mempool_cli.model import Finding

_CGROUPS = re.compile(r"docker|kubepods|containerd|libpod|lxc|garden")
_FABRIC_MANAGER = "nv-fabricmanager"[:15]
_CONFIDENTIAL = {"/dev/tdx_guest": "TDX", "/dev/sev-guest": "SEV-SNP"}


def findings(facts: Facts) -> Iterator[Finding]:
    """A line each; what there is no sign of is left out, but for the container and the hypervisor."""
    sources = facts.sources
    assert sources is not None
    yield container(sources)
    yield hypervisor(facts, sources)
    if is_wsl(sources):
        yield ok("wsl", "Windows Subsystem for Linux: the driver is that of Windows")
    if words := confidential(facts):
        yield ok("confidential", words)
    if switches := _switches(sources):
        yield fabric(facts, sources, switches)


def containers(sources: Sources) -> tuple[str, ...]:
    """The signs that this is a container."""
    found = [path for path in ("/.dockerenv", "/run/.containerenv") if sources.exists(path)]
    group = _CGROUPS.search(sources.text("/proc/1/cgroup") or "")
    found += [f"/proc/1/cgroup: {group[0]}"] if group else []
    found += ["KUBERNETES_SERVICE_HOST"] if "KUBERNETES_SERVICE_HOST" in sources.environment else []
    mounts = sources.text("/proc/self/mountinfo") or ""
    found += ["/ is an overlay"] if re.search(r"^\d+ \d+ \S+ \S+ / .* - overlay ", mounts, re.MULTILINE) else []
    return tuple(found)


def container(sources: Sources) -> Finding:
    """Whether this is a container, and what its environment says of GPUs."""
    signs = containers(sources)
    if not signs:
        return ok("container", "no sign of one")
    names = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
    given = {name: sources.environment[name] for name in names if name in sources.environment}
    evidence = [f"{name}={value}" for name, value in given.items()]
    text = f"yes ({', '.join(signs)})"
    capabilities = given.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if capabilities and not {"compute", "all"} & set(capabilities.split(",")):
        hint = "NVIDIA_DRIVER_CAPABILITIES=compute,utility brings libcuda into the container"
        return warn("container", f"{text}; its capabilities leave out compute", evidence=evidence, hint=hint)
    if given.get("NVIDIA_VISIBLE_DEVICES") in ("", "none", "void"):
        hint = "NVIDIA_VISIBLE_DEVICES=all, or the UUIDs of cards"
        return warn("container", f"{text}; it was given no card", evidence=evidence, hint=hint)
    return ok("container", text, evidence=evidence)


def hypervisor_name(sources: Sources) -> str | None:
    """What this virtual machine runs on; None on bare metal."""
    flag = re.search(r"^flags\s*:.*\bhypervisor\b", sources.text("/proc/cpuinfo") or "", re.MULTILINE)
    kind = sources.text("/sys/hypervisor/type")
    if not flag and not kind:
        return None
    return kind or sources.text("/sys/class/dmi/id/product_name") or "kind unknown"


def hypervisor(facts: Facts, sources: Sources) -> Finding:
    """Whether this is a virtual machine, in which P2P can look right and not be."""
    name = hypervisor_name(sources)
    if name is None:
        return ok("hypervisor", "no sign of one")
    text = f"virtual machine ({name})"
    if any(device.peers for device in facts.look.devices):
        hint = "`mempool verify` shows whether data gets through"
        return warn("hypervisor", f"{text}: P2P between its cards can lose data without a word", hint=hint)
    return ok("hypervisor", text)


def is_wsl(sources: Sources) -> bool:
    """Whether Linux runs in Windows."""
    release = sources.text("/proc/sys/kernel/osrelease") or ""
    return "microsoft" in release.lower() or sources.exists("/dev/dxg")


def confidential(facts: Facts) -> str | None:
    """What tells of confidential computing. Nothing about P2P follows from it."""
    assert facts.sources is not None
    guests = [name for path, name in _CONFIDENTIAL.items() if facts.sources.exists(path)]
    said = [f"this virtual machine is confidential ({', '.join(guests)})"] if guests else []
    said += ["NVML: the GPUs are in confidential computing mode"] if facts.nvml and facts.nvml.confidential else []
    return "; ".join(said) or None


def _switches(sources: Sources) -> int:
    return sum(bool(re.fullmatch(r"nvidia-nvswitch\d+", name)) for name in sources.names("/dev"))


def fabric(facts: Facts, sources: Sources, switches: int) -> Finding:
    """Whether the fabric manager runs, where NVSwitches need it."""
    text = f"{switches} NVSwitch{'es' if switches > 1 else ''}"
    if any(name == _FABRIC_MANAGER for name in sources.processes()):
        return ok("fabric", f"{text}, nvidia-fabricmanager runs")
    if facts.works:
        return ok("fabric", f"{text}; no nvidia-fabricmanager is seen here, and CUDA works")
    hint = "`systemctl status nvidia-fabricmanager`: of the driver's version, and running on the host"
    return warn("fabric", f"{text}; nvidia-fabricmanager is not seen to run", hint=hint)
