"""The driver: NVIDIA's bindings, libcuda, its start, the kernel module, and the files of the devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from mempool_cli.doctor import libraries, pci
from mempool_cli.doctor.findings import Facts, fail, ok, warn
from mempool_cli.doctor.host import containers, is_wsl
from mempool_cli.doctor.sources import Sources
from mempool_cli.driver.identity import read_module
from mempool_cli.errors import Problem
from mempool_cli.model import Finding, KernelModule, Libcuda

_MODULE = "/proc/driver/nvidia/version"
_GENERATION = re.compile(r"[1-9][0-9]{0,3}")  # of a source tree without tags the version is "0+unknown"
_NOT_STARTED = ("no-bindings", "no-driver", "driver-too-old", "missing-function")
_GIVE_GPUS = "give the container its GPUs: `docker run --gpus all`, with nvidia-container-toolkit on the host"


def findings(facts: Facts) -> Iterator[Finding]:
    """From the bindings down to the device files; what works is not doubted."""
    assert facts.sources is not None
    yield bindings(facts)
    if facts.look.libcuda or not facts.works:
        yield libcuda(facts, facts.sources)
    yield start(facts)
    if not facts.works and not facts.refused and not is_wsl(facts.sources):
        yield module(facts.sources)
        yield nodes(facts.sources)


# --- the bindings ---


def bindings(facts: Facts) -> Finding:
    """Whether cuda-bindings can be imported, and how they and the driver go together."""
    version, failure = facts.look.bindings, facts.look.failure
    if version is None:
        if failure and failure.code == "no-bindings":
            return _failed("bindings", failure)
        return warn("bindings", "not known: the process that asked for them did not come to its end")
    cuda = facts.look.driver.cuda_version if facts.look.driver else None
    theirs, ours = version.partition(".")[0], (cuda or "").partition(".")[0]
    text = f"cuda-bindings {version}"
    if cuda is None or theirs == ours or not _GENERATION.fullmatch(theirs):
        return ok("bindings", text)
    if int(theirs) > int(ours):
        return ok("bindings", f"{text}; the driver is for CUDA {cuda}: what only {theirs} has is a missing-function")
    return ok("bindings", f"{text}; the driver is for CUDA {cuda}: what is new in {ours} is not used")


# --- libcuda ---


def libcuda(facts: Facts, sources: Sources) -> Finding:
    """Which file was loaded, and whether the kernel module is of the same version."""
    library, kernel = facts.look.libcuda, kernel_module(sources)
    if library is None:
        return _not_loaded(facts, sources)
    text = f"{library.path}{_module_words(kernel)}"
    path = PurePosixPath(library.path)
    if "stubs" in path.parts:
        hint = "put the directory of the driver's own libcuda.so.1 first in LD_LIBRARY_PATH"
        return fail("libcuda", f"{text}: the toolkit's stub, which only links", hint=hint, code="no-driver")
    if is_wsl(sources) and not library.path.startswith(libraries.WSL_DIRECTORY):
        hint = (
            f"remove the Linux driver: in WSL the driver is that of Windows, and libcuda in {libraries.WSL_DIRECTORY}"
        )
        return warn("libcuda", f"{text}: not the one of WSL", hint=hint)
    return _agreement(facts, library, kernel, text)


def _agreement(facts: Facts, library: Libcuda, kernel: KernelModule | None, text: str) -> Finding:
    if library.version is None or kernel is None or library.version == kernel.version:
        return ok("libcuda", text)
    newer = _numbers(library.version) > _numbers(kernel.version)
    compat = "compat" in PurePosixPath(library.path).parts
    words = f"{text}: {'cuda-compat, ' if compat else ''}{'newer' if newer else 'older'} than the kernel module"
    if facts.works and newer:
        return ok("libcuda", f"{words}, by design" if compat else words)
    hint = "after an update of the driver reload the module or reboot; in a container remove a libcuda of the image"
    if compat:
        hint = "take it out of LD_LIBRARY_PATH: it has to be newer than the module, and works on data-centre cards only"
    if facts.works or compat:
        return warn("libcuda", words, hint=hint)
    return fail("libcuda", words, hint=hint, code="no-driver")


def _not_loaded(facts: Facts, sources: Sources) -> Finding:
    failure = facts.look.failure
    found = libraries.search(sources)
    looked = [f"looked in {place}" for place in found.places]
    if failure and failure.code not in _NOT_STARTED:
        return warn("libcuda", "not known: the process that loaded it did not come to its end", evidence=found.files)
    if found.files and failure and failure.code == "no-bindings":
        return ok("libcuda", f"{found.files[0]}, not loaded: without bindings nothing was asked")
    hint = _GIVE_GPUS if containers(sources) else "install the NVIDIA driver"
    hint = "install the NVIDIA driver in Windows, and none in Linux" if is_wsl(sources) else hint
    if found.files or found.broken:
        evidence = [f"found {file}" for file in found.files] + [f"{file} is no library" for file in found.broken]
        text = "libcuda.so.1 is there, and cannot be loaded"
        return fail("libcuda", text, evidence=evidence, hint="reinstall the NVIDIA driver", code="no-driver")
    return fail("libcuda", "libcuda.so.1 is not found", evidence=looked, hint=hint, code="no-driver")


def kernel_module(sources: Sources) -> KernelModule | None:
    """The kernel side of the driver, if it is loaded."""
    return read_module(f"{sources.text(_MODULE) or ''} ")


def _module_words(kernel: KernelModule | None) -> str:
    return f", kernel module {kernel.version} ({kernel.flavour})" if kernel else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


# --- its start ---


def start(facts: Facts) -> Finding:
    """What cuInit answered."""
    failure, driver = facts.look.failure, facts.look.driver
    if failure is None or facts.refused:
        if driver is None:
            return warn("cuInit", "CUDA starts, and the driver does not say its version (cuDriverGetVersion)")
        return ok("cuInit", f"CUDA {driver.cuda_version}")
    if failure.code in ("no-bindings", "no-driver") and facts.sources and facts.look.libcuda is None:
        return warn("cuInit", "not called")
    return _failed("cuInit", failure)


def _failed(topic: str, problem: Problem) -> Finding:
    evidence = [str(problem.driver)] if problem.driver else []
    return fail(topic, problem.message, evidence=evidence, hint=problem.hint, code=problem.code, driver=problem.driver)


# --- the kernel's side, where CUDA does not start ---


def module(sources: Sources) -> Finding:
    """Whether the kernel module is loaded, and whether there is a card for it."""
    kernel, cards = kernel_module(sources), pci.gpus(sources)
    if kernel:
        return ok("module", f"{kernel.version} ({kernel.flavour})")
    if cards:
        evidence = [f"on the PCI bus: {', '.join(cards)}"]
        hint = "`modprobe nvidia`, and see dmesg for why not: another driver (nouveau), Secure Boot, another kernel"
        return fail("module", "the kernel module nvidia is not loaded", evidence=evidence, hint=hint, code="no-driver")
    seen = "; no NVIDIA card is on the PCI bus" if sources.names("/sys/bus/pci/devices") else ""
    return fail("module", f"the kernel module nvidia is not loaded{seen}", code="no-driver")


def nodes(sources: Sources) -> Finding:
    """Whether the device files are there, and this user may use them."""
    there = [f"/dev/{name}" for name in sources.names("/dev") if re.fullmatch(r"nvidia\d+", name)]
    wanted = ["/dev/nvidiactl", "/dev/nvidia-uvm", *(there or ["/dev/nvidia0"])]
    missing = [path for path in wanted if not sources.exists(path)]
    locked = [path for path in wanted if path not in missing and not sources.usable(path)]
    if not missing and not locked:
        return ok("nodes", ", ".join(wanted))
    if locked:
        hint = "add this user to the group that they belong to (`ls -l /dev/nvidia*`)"
        return fail("nodes", f"{', '.join(locked)} may not be read and written", hint=hint, code="no-driver")
    hint = _GIVE_GPUS if containers(sources) else "`nvidia-modprobe -c 0 -u` makes them, once the module is loaded"
    return fail("nodes", f"{', '.join(missing)} missing", hint=hint, code="no-driver")
