"""The host under the driver, from captured files: what a user reads of each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mempool_cli.doctor import iommu
from mempool_cli.doctor.look import Look
from mempool_cli.doctor.sources import Sources

from .trees import (
    AMD,
    BARE_METAL,
    CONTAINER,
    NODES,
    TWO,
    VIRTUAL,
    answered,
    examined,
    groups,
    module,
    not_loaded,
    plant,
    refused,
    text,
)

WSL = {"/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n", "/dev/dxg": ""}


def test_an_amd_host_whose_iommu_translates(tmp_path: Path) -> None:
    found = examined(plant(tmp_path, AMD), answered())
    assert (
        text(found)
        == """\
ok    bindings      cuda-bindings 13.5.0
ok    libcuda       /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04, kernel module 580.159.04 (open)
ok    cuInit        CUDA 13.0
ok    devices       0-1 NVIDIA H200
ok    pools         device, host, NUMA on 0-1
ok    handles       POSIX_FILE_DESCRIPTOR, FABRIC on 0-1
ok    numa          node 0 nearest to 0-1
ok    compute mode  default on 0-1
ok    p2p           all 2 ordered pairs are capable
warn  iommu         AMD-Vi translates addresses: P2P over PCIe can be slow, hang or lose data
                    0000:01:00.0: group 14, type DMA-FQ
                    0000:03:00.0: group 27, type DMA-FQ
                    kernel command line: amd_iommu=on
                    try: `mempool verify` shows whether data gets through; if it does not, put iommu=pt on the kernel's\
 command line
ok    acs           cannot be read without privileges; each card is in an IOMMU group of its own
ok    container     no sign of one
ok    hypervisor    no sign of one
"""
    )


def test_the_same_on_a_terminal_of_80_columns(tmp_path: Path) -> None:
    shown = text(examined(plant(tmp_path, AMD), answered()), "libcuda", "iommu", width=80)
    assert (
        shown
        == """\
ok    libcuda  /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04, kernel module
               580.159.04 (open)
warn  iommu    AMD-Vi translates addresses: P2P over PCIe can be slow, hang or
               lose data
               0000:01:00.0: group 14, type DMA-FQ
               0000:03:00.0: group 27, type DMA-FQ
               kernel command line: amd_iommu=on
               try: `mempool verify` shows whether data gets through; if it does
                 not, put iommu=pt on the kernel's command line
"""
    )


def test_an_iommu_that_passes_through(tmp_path: Path) -> None:
    unit = {"/sys/class/iommu/dmar0/address": "", "/proc/cmdline": "quiet intel_iommu=on iommu=pt\n"}
    tree = groups("identity", g14="0000:01:00.0 0000:03:00.0")
    found = examined(plant(tmp_path, BARE_METAL, TWO, unit, tree), answered())
    assert (
        text(found, "iommu", "acs", verbose=True)
        == """\
ok    iommu  Intel VT-d passes addresses through
             0000:01:00.0: group 14, type identity
             0000:03:00.0: group 14, type identity
             kernel command line: intel_iommu=on iommu=pt
ok    acs    cannot be read without privileges; cards that share an IOMMU group are not isolated from each other
             group 14: 0000:01:00.0, 0000:03:00.0
             try: as root `lspci -vvv | grep ACSCtl` shows it, bridge by bridge
"""
    )


@pytest.mark.parametrize(
    ("tree", "mode"),
    [
        ({}, None),
        ({"/sys/kernel/iommu_groups/.keep": ""}, "off"),
        (groups("DMA", g0="0000:00:01.0"), "translated"),
        (groups("blocked", g0="0000:00:01.0"), "other"),
        # Another device's group says nothing of the card's.
        ({**TWO, **groups("DMA", g0="0000:00:01.0"), **groups("identity", g1="0000:01:00.0")}, "passthrough"),
    ],
    ids=["unreadable", "off", "no-card", "blocked", "of-the-card"],
)
def test_modes_of_an_iommu(tmp_path: Path, tree: dict[str, str], mode: str | None) -> None:
    plant(tmp_path, tree)
    (tmp_path / "sys/kernel/iommu_groups/.keep").unlink(missing_ok=True)
    assert iommu.mode(Sources(tmp_path, {})) == mode


def test_translation_is_no_suspect_in_a_virtual_machine_or_with_one_card(tmp_path: Path) -> None:
    tree = groups("DMA", g14="0000:01:00.0", g15="0000:03:00.0")
    virtual = examined(plant(tmp_path / "virtual", VIRTUAL, TWO, tree), answered())
    assert (
        text(virtual, "iommu", "hypervisor")
        == """\
ok    iommu       the IOMMU translates addresses
warn  hypervisor  virtual machine (KVM): P2P between its cards can lose data without a word
                  try: `mempool verify` shows whether data gets through
"""
    )
    one = plant(tmp_path / "one", BARE_METAL, tree, {key: TWO[key] for key in TWO if "0000:01" in key})
    assert (
        text(examined(one, answered("1")), "iommu", "hypervisor", "acs")
        == """\
ok    iommu       the IOMMU translates addresses
ok    hypervisor  no sign of one
"""
    )


def test_wsl(tmp_path: Path) -> None:
    plant(tmp_path, WSL, VIRTUAL)
    library = "/usr/lib/wsl/lib/libcuda.so.1.1"
    found = examined(tmp_path, answered("1", library=library, version=None))
    assert (
        text(found, "libcuda", "wsl", "hypervisor", "module", "nodes")
        == f"""\
ok    libcuda     {library}
ok    hypervisor  virtual machine (KVM)
ok    wsl         Windows Subsystem for Linux: the driver is that of Windows
"""
    )
    assert (
        text(examined(tmp_path, answered("1")), "libcuda")
        == """\
warn  libcuda  /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04: not the one of WSL
               try: remove the Linux driver: in WSL the driver is that of Windows, and libcuda in /usr/lib/wsl/lib
"""
    )
    missing = text(examined(tmp_path, not_loaded()), "libcuda", "module", "nodes")
    assert missing.endswith("try: install the NVIDIA driver in Windows, and none in Linux\n")


def test_a_container_that_was_given_no_gpu(tmp_path: Path) -> None:
    environment = {"NVIDIA_DRIVER_CAPABILITIES": "graphics,utility", "NVIDIA_VISIBLE_DEVICES": "all"}
    plant(tmp_path, CONTAINER, module(), TWO)
    found = examined(tmp_path, not_loaded(), environment=environment)
    assert (
        text(found, "libcuda", "cuInit", "module", "nodes", "container")
        == """\
fail  libcuda    libcuda.so.1 is not found
                 looked in LD_LIBRARY_PATH: not set
                 looked in /etc/ld.so.cache: not there
                 looked in /etc/ld.so.conf: names no directory
                 looked in /lib, /usr/lib, /lib64, /usr/lib64, /usr/lib/x86_64-linux-gnu, /usr/lib/aarch64-linux-gnu
                 looked in /usr/lib/wsl/lib, where WSL has it
                 try: give the container its GPUs: `docker run --gpus all`, with nvidia-container-toolkit on the host
warn  cuInit     not called
ok    module     580.159.04 (open)
fail  nodes      /dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia0 missing
                 try: give the container its GPUs: `docker run --gpus all`, with nvidia-container-toolkit on the host
warn  container  yes (/.dockerenv, / is an overlay); its capabilities leave out compute
                 NVIDIA_VISIBLE_DEVICES=all
                 NVIDIA_DRIVER_CAPABILITIES=graphics,utility
                 try: NVIDIA_DRIVER_CAPABILITIES=compute,utility brings libcuda into the container
"""
    )


@pytest.mark.parametrize(
    ("tree", "environment", "sign"),
    [
        ({"/run/.containerenv": ""}, {}, "/run/.containerenv"),
        ({"/proc/1/cgroup": "0::/kubepods/besteffort/pod1\n"}, {}, "/proc/1/cgroup: kubepods"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "KUBERNETES_SERVICE_HOST"),
    ],
)
def test_signs_of_a_container(tmp_path: Path, tree: dict[str, str], environment: dict[str, str], sign: str) -> None:
    found = examined(plant(tmp_path, tree), answered("1"), environment=environment)
    assert text(found, "container") == f"ok    container  yes ({sign})\n"


def test_a_confidential_machine_whose_p2p_is_not_judged_by_it(tmp_path: Path) -> None:
    found = examined(plant(tmp_path, VIRTUAL, {"/dev/tdx_guest": ""}), answered())
    assert (
        text(found, "confidential", "p2p")
        == """\
ok    p2p           all 2 ordered pairs are capable
ok    confidential  this virtual machine is confidential (TDX)
"""
    )


def test_nvswitches_and_their_fabric_manager(tmp_path: Path) -> None:
    plant(tmp_path, {"/dev/nvidia-nvswitch0": "", "/dev/nvidia-nvswitch1": "", "/dev/nvidia-nvswitchctl": ""})
    assert text(examined(tmp_path, answered()), "fabric") == (
        "ok    fabric  2 NVSwitches; no nvidia-fabricmanager is seen here, and CUDA works\n"
    )
    failed = examined(tmp_path, refused(802, "CUDA_ERROR_SYSTEM_NOT_READY", "start it"))
    assert (
        text(failed, "fabric")
        == """\
warn  fabric  2 NVSwitches; nvidia-fabricmanager is not seen to run
              try: `systemctl status nvidia-fabricmanager`: of the driver's version, and running on the host
"""
    )
    plant(tmp_path, {"/proc/812/comm": "nv-fabricmanage\n", "/proc/self/comm": "python\n"})
    assert text(examined(tmp_path, answered()), "fabric") == "ok    fabric  2 NVSwitches, nvidia-fabricmanager runs\n"


@pytest.mark.parametrize("found", [answered("0"), answered("1"), not_loaded()], ids=["0", "1", "no-driver"])
def test_nothing_can_be_read(tmp_path: Path, found: Look) -> None:
    assert (
        text(examined(tmp_path / "absent", found), "iommu", "acs", "container", "hypervisor", "wsl", "fabric")
        == """\
ok    iommu       its mode cannot be read
ok    container   no sign of one
ok    hypervisor  no sign of one
"""
    )


def test_files_that_are_no_files(tmp_path: Path) -> None:
    plant(tmp_path, {"/proc/cpuinfo/x": "", "/proc/cmdline/x": "", "/dev": "", "/proc/1/comm/x": ""})
    sources = Sources(tmp_path, {})
    assert (sources.text("/proc/cpuinfo"), sources.head("/proc/cpuinfo", 4), sources.names("/dev")) == (None, None, ())
    assert (sources.link("/dev"), sources.exists("/dev\0"), sources.processes()) == (None, False, ())
    assert text(examined(tmp_path, answered()), "hypervisor") == "ok    hypervisor  no sign of one\n"


def test_device_files_are_not_doubted_where_cuda_works(tmp_path: Path) -> None:
    assert text(examined(tmp_path, answered()), "nodes", "module") == ""
    stuck = refused(999, "CUDA_ERROR_UNKNOWN", "see dmesg")
    assert text(examined(plant(tmp_path, NODES), stuck), "nodes") == (
        "ok    nodes  /dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia0, /dev/nvidia1\n"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use every file")
def test_device_files_that_this_user_may_not_use(tmp_path: Path) -> None:
    plant(tmp_path, NODES)
    (tmp_path / "dev/nvidiactl").chmod(0)
    stuck = refused(304, "CUDA_ERROR_OPERATING_SYSTEM", "check the files")
    assert (
        text(examined(tmp_path, stuck), "nodes")
        == """\
fail  nodes  /dev/nvidiactl may not be read and written
             try: add this user to the group that they belong to (`ls -l /dev/nvidia*`)
"""
    )
