"""P2P: which ordered pairs of devices are capable, and NVML's reason for those that are not."""

from __future__ import annotations

from collections.abc import Iterator

from mempool_cli.doctor.findings import Facts, ok, warn
from mempool_cli.doctor.nvml import Nvml, P2PStatus
from mempool_cli.model import DeviceDetail, Finding
from mempool_cli.wording import ranges

_REASONS = {
    P2PStatus.OK.name: "NVML finds nothing in the way",
    P2PStatus.CHIPSET_NOT_SUPPORTED.name: "the chipset does not support it",
    P2PStatus.GPU_NOT_SUPPORTED.name: "the card does not support it",
    P2PStatus.IOH_TOPOLOGY_NOT_SUPPORTED.name: "the way between their PCIe root ports does not support it",
    P2PStatus.DISABLED_BY_REGKEY.name: "a setting of the kernel module disables it",
    P2PStatus.NOT_SUPPORTED.name: "not supported",
    P2PStatus.UNKNOWN.name: "NVML does not know why",
}


def findings(facts: Facts) -> Iterator[Finding]:
    """Nothing without devices."""
    if facts.look.devices:
        yield p2p(facts)
    if facts.nvml is not None:
        yield nvml(facts, facts.nvml)


def p2p(facts: Facts) -> Finding:
    """The pairs, counted, and a line for each reason why one is not capable."""
    devices = facts.look.devices
    count = len(devices) * (len(devices) - 1)
    if not count:
        return ok("p2p", "one device: there is no pair")
    capable = sum(len(device.peers) for device in devices)
    unknown = [f"{d.ordinal} to {ranges(d.peers_unknown)}: the driver does not say" for d in devices if d.peers_unknown]
    if capable == count:
        return ok("p2p", f"all {count} ordered pairs are capable")
    hint = "`nvidia-smi topo -m` shows the ways between the cards"
    evidence = _incapable(devices, facts.nvml) + unknown
    silent = sum(len(device.peers_unknown) for device in devices)
    if silent == count:
        return warn("p2p", f"the driver does not say whether any of {count} ordered pairs is capable", hint=hint)
    rest = f", {silent} not known" if silent else ""
    return warn("p2p", f"{capable or 'none'} of {count} ordered pairs are capable{rest}", evidence=evidence, hint=hint)


def _incapable(devices: tuple[DeviceDetail, ...], nvml: Nvml | None) -> list[str]:
    """`0 cannot reach 2-3: ...`, a line an accessor and reason."""
    said = {(link.accessor.lower(), link.owner.lower()): link.reason for link in (nvml.links if nvml else ())}
    lines = []
    for device in devices:
        reasons: dict[str | None, list[int]] = {}
        for owner in devices:
            if owner is not device and owner.ordinal not in (*device.peers, *device.peers_unknown):
                key = (device.uuid.lower(), owner.uuid.lower())
                reasons.setdefault(said.get(key), []).append(owner.ordinal)
        lines += [f"{device.ordinal} cannot reach {ranges(owners)}{_words(why)}" for why, owners in reasons.items()]
    return lines


def _words(reason: str | None) -> str:
    return "" if reason is None else f": {_REASONS.get(reason, 'NVML')} ({reason})"


def nvml(facts: Facts, said: Nvml) -> Finding:
    """Whether NVML could be asked, and what it says of the cards themselves."""
    hint: str | None
    if said.absent:
        hint = "pip install 'mempool-cli[nvml]' adds the reasons for P2P, MIG and the order of nvidia-smi"
        return ok("nvml", "not asked: nvidia-ml-py is not installed", hint=hint)
    if said.failure:
        hint = "in a container NVIDIA_DRIVER_CAPABILITIES needs utility" if facts.works else None
        return warn("nvml", f"does not answer: {said.failure}", hint=hint)
    off = [device.index for device in said.devices if device.persistence is False]
    text = f"driver {said.driver_version}" if said.driver_version else "answers"
    return ok("nvml", f"{text}{f'; persistence mode is off on {ranges(off)}' if off else ''}")
