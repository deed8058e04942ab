"""Bindings, libcuda, kernel module, cuInit: what a user reads where they do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from mempool_cli.doctor.look import Look
from mempool_cli.driver import driver_source
from mempool_cli.driver.codes import Code
from mempool_cli.driver.start import initialize
from mempool_cli.errors import MempoolError, Problem
from mempool_cli.exit_status import EXIT_STATUS, MACHINE
from mempool_cli.model import Diagnosis, DriverInfo

from .trees import BARE_METAL, LIBRARIES, TWO, answered, examined, module, not_loaded, plant, refused, text

COMPAT = "/usr/local/cuda-13.0/compat/libcuda.so.580.159.04"
OLD_MODULE = module("535.183.01", kind="x86_64 Kernel Module")


def test_cuda_compat_is_said_as_what_it_is(tmp_path: Path) -> None:
    found = examined(plant(tmp_path, BARE_METAL, OLD_MODULE), answered("1", library=COMPAT))
    assert (
        text(found, "libcuda", "cuInit")
        == f"""\
ok    libcuda  {COMPAT}, kernel module 535.183.01 (proprietary): cuda-compat, newer than the kernel module, by design
ok    cuInit   CUDA 13.0
"""
    )


def test_cuda_compat_that_does_not_support_the_card(tmp_path: Path) -> None:
    hint = "remove it from the library path"
    stopped = refused(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", hint, library=COMPAT)
    found = examined(plant(tmp_path, BARE_METAL, OLD_MODULE), stopped)
    assert (
        text(found, "libcuda", "cuInit")
        == f"""\
warn  libcuda  {COMPAT}, kernel module 535.183.01 (proprietary): cuda-compat, newer than the kernel module
               try: take it out of LD_LIBRARY_PATH: it has to be newer than the module, and works on data-centre cards\
 only
fail  cuInit   the CUDA driver does not start
               cuInit = CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)
               try: remove it from the library path
"""
    )


def test_cuda_compat_that_is_older_than_the_module(tmp_path: Path) -> None:
    stopped = refused(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reload the module", library=COMPAT)
    found = examined(plant(tmp_path, BARE_METAL, module("590.1")), stopped)
    assert text(found, "libcuda").splitlines() == [
        f"warn  libcuda  {COMPAT}, kernel module 590.1 (open): cuda-compat, older than the kernel module",
        "               try: take it out of LD_LIBRARY_PATH: it has to be newer than the module, and works on"
        " data-centre cards only",
    ]


@pytest.mark.parametrize(("kernel", "word"), [("570.10.10", "newer"), ("590.1", "older")])
def test_versions_that_disagree(tmp_path: Path, kernel: str, word: str) -> None:
    plant(tmp_path, BARE_METAL, module(kernel))
    stopped = refused(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reload the module")
    hint = "after an update of the driver reload the module or reboot; in a container remove a libcuda of the image"
    assert (
        text(examined(tmp_path, stopped), "libcuda", "module")
        == f"""\
fail  libcuda  {LIBRARIES}/libcuda.so.580.159.04, kernel module {kernel} (open): {word} than the kernel module
               try: {hint}
ok    module   {kernel} (open)
"""
    )
    level = "warn" if word == "older" else "ok  "
    assert text(examined(tmp_path, answered("1")), "libcuda").startswith(f"{level}  libcuda")


def test_the_stub(tmp_path: Path) -> None:
    stub = "/usr/local/cuda/lib64/stubs/libcuda.so"
    found = examined(tmp_path, refused(34, "CUDA_ERROR_STUB_LIBRARY", "put the driver's own first", library=stub))
    assert (
        text(found, "libcuda")
        == f"""\
fail  libcuda  {stub}: the toolkit's stub, which only links
               try: put the directory of the driver's own libcuda.so.1 first in LD_LIBRARY_PATH
"""
    )


def test_where_libcuda_was_looked_for(tmp_path: Path) -> None:
    plant(
        tmp_path,
        BARE_METAL,
        {path: TWO[path] for path in TWO if path.startswith("/sys")},
        {
            "/etc/ld.so.conf": "include ld.so.conf.d/*.conf\ninclude /etc/ld.so.conf.d/*.conf\n/opt/lib # ours\n",
            "/etc/ld.so.conf.d/cuda.conf": "# none\n/usr/local/cuda/lib64\n",
            "/etc/ld.so.conf.d/ignored": "/never\n",
            "/etc/ld.so.cache": "glibc-ld.so.cache1.1\0libc.so.6\0/lib/libc.so.6\0",
        },
    )
    found = examined(tmp_path, not_loaded(), environment={"LD_LIBRARY_PATH": "/opt/a::/opt/b"})
    assert (
        text(found, "libcuda", "module", "nodes")
        == """\
fail  libcuda  libcuda.so.1 is not found
               looked in LD_LIBRARY_PATH: /opt/a:/opt/b
               looked in /etc/ld.so.cache: does not list libcuda.so.1
               looked in /etc/ld.so.conf: /usr/local/cuda/lib64, /opt/lib
               looked in /lib, /usr/lib, /lib64, /usr/lib64, /usr/lib/x86_64-linux-gnu, /usr/lib/aarch64-linux-gnu
               looked in /usr/lib/wsl/lib, where WSL has it
               try: install the NVIDIA driver
fail  module   the kernel module nvidia is not loaded
               on the PCI bus: 0000:01:00.0, 0000:03:00.0
               try: `modprobe nvidia`, and see dmesg for why not: another driver (nouveau), Secure Boot, another kernel
fail  nodes    /dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia0 missing
               try: `nvidia-modprobe -c 0 -u` makes them, once the module is loaded
"""
    )


def test_a_libcuda_that_cannot_be_loaded(tmp_path: Path) -> None:
    plant(tmp_path, {f"{LIBRARIES}/libcuda.so.1": "\x7fELF of another machine", "/opt/a/libcuda.so.1": "no library"})
    plant(tmp_path, {"/etc/ld.so.cache": f"x\0{LIBRARIES}/libcuda.so.1\0"})
    found = examined(tmp_path, not_loaded(), environment={"LD_LIBRARY_PATH": "/opt/a"})
    assert (
        text(found, "libcuda")
        == f"""\
fail  libcuda  libcuda.so.1 is there, and cannot be loaded
               found {LIBRARIES}/libcuda.so.1
               /opt/a/libcuda.so.1 is no library
               try: reinstall the NVIDIA driver
"""
    )


def test_no_bindings(tmp_path: Path) -> None:
    problem = Problem(code="no-bindings", message="NVIDIA's Python bindings cannot be imported: none", hint="pip")
    plant(tmp_path, {f"{LIBRARIES}/libcuda.so.1": "\x7fELF"})
    found = examined(tmp_path, Look(failure=problem))
    assert (
        text(found, "bindings", "libcuda", "cuInit")
        == f"""\
fail  bindings  NVIDIA's Python bindings cannot be imported: none
                try: pip
ok    libcuda   {LIBRARIES}/libcuda.so.1, not loaded: without bindings nothing was asked
warn  cuInit    not called
"""
    )
    failed = Diagnosis(findings=found).problem
    assert failed is not None
    assert (failed.code, failed.exit) == ("no-bindings", 3)


@pytest.mark.parametrize(
    ("bindings", "cuda", "shown"),
    [
        ("12.9.4", "13.0", "cuda-bindings 12.9.4; the driver is for CUDA 13.0: what is new in 13 is not used"),
        ("13.5.0", "12.4", "cuda-bindings 13.5.0; the driver is for CUDA 12.4: what only 13 has is a missing-function"),
        ("13.5.0", "13.1", "cuda-bindings 13.5.0"),
        ("0+unknown", "13.1", "cuda-bindings 0+unknown"),
        ("", "13.1", "cuda-bindings "),
    ],
)
def test_generations(tmp_path: Path, bindings: str, cuda: str, shown: str) -> None:
    driver = DriverInfo(kind="cuda", cuda_version=cuda, bindings=bindings)
    found = structs.replace(answered("1"), bindings=bindings, driver=driver)
    assert text(examined(tmp_path, found), "bindings") == f"ok    bindings  {shown}\n"


def test_a_driver_that_crashes(tmp_path: Path) -> None:
    message = "the driver does not answer: the process was killed by SIGSEGV in cuInit"
    found = examined(tmp_path, Look(failure=Problem(code="trial-failed", message=message, hint="see dmesg")))
    assert (
        text(found, "bindings", "libcuda", "cuInit")
        == f"""\
warn  bindings  not known: the process that asked for them did not come to its end
warn  libcuda   not known: the process that loaded it did not come to its end
fail  cuInit    {message}
                try: see dmesg
"""
    )
    failed = Diagnosis(findings=found).problem
    assert failed is not None
    assert (failed.code, failed.exit) == ("machine-unfit", MACHINE)


EXPLAINED = {
    3: "forked",
    34: "stub",
    46: "exclusive",
    304: "/dev/nvidia-uvm",
    802: "nvidia-fabricmanager",
    803: "reload the module",
    804: "cuda-compat",
    805: "MPS",
    808: "MPS",
    999: "dmesg",
    12345: "kernel log",
}


@pytest.mark.parametrize("code", EXPLAINED)
def test_every_code_of_cuinit_is_explained(tmp_path: Path, code: int) -> None:
    machine = tmp_path / "machine.toml"
    machine.write_text(f'[[device]]\n[[failure]]\ncall = "cuInit"\ncode = {code}\n')
    with pytest.raises(MempoolError) as raised:
        initialize(driver_source(str(machine)).open())
    problem = raised.value.problem
    assert (EXIT_STATUS[problem.code], problem.driver and problem.driver.code) == (MACHINE, code)
    assert EXPLAINED[code] in (problem.hint or "")


def test_no_device_quotes_what_hid_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for visible, code in (("7", Code.CUDA_ERROR_NO_DEVICE), ("0,0", Code.CUDA_ERROR_INVALID_DEVICE)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        problem = answered("2").failure
        assert problem is not None
        assert problem.message == f"no usable CUDA device; CUDA_VISIBLE_DEVICES={visible!r}"
        assert problem.driver is not None
        assert problem.driver.code == code
