"""`mempool doctor` as users run it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from cli.conftest import Mempool, MempoolProcess, settled
from cli.documents import document
from cli.machines import label
from cli.processes import on_terminal
from standin.stand_in import StandIn, compile_c, machine_environment

from mempool_cli import doctor as doctor_package
from mempool_cli.doctor.look import look
from mempool_cli.driver import driver_source
from mempool_cli.driver.sim.profile import Failure

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
REST = "ok    host          a simulated machine has no libcuda, IOMMU, container or hypervisor\n"


def test_a_simulated_machine(mempool: Mempool) -> None:
    assert mempool("--sim", "2", "doctor") == (
        0,
        label("2")
        + """\
ok    cuInit        CUDA 13.0
ok    devices       0-1 NVIDIA H200
ok    pools         device, host, NUMA on 0-1
ok    handles       POSIX_FILE_DESCRIPTOR, FABRIC on 0-1
ok    numa          node 0 nearest to 0-1
ok    compute mode  default on 0-1
ok    p2p           all 2 ordered pairs are capable
"""
        + REST,
        "",
    )


def test_the_page_names_every_topic() -> None:
    table = re.search(r"^\| topics \|.*?\n\n", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert table
    documented = {name for row in re.findall(r"^\| (`.*?) \|", table[0], re.MULTILINE) for name in row.split(", ")}
    code = "".join(file.read_text(encoding="utf-8") for file in Path(doctor_package.__file__).parent.glob("*.py"))
    topics = set(re.findall(r'\b(?:ok|warn|fail|_failed)\(\s*"([^"]+)"', code))
    assert {name.strip("`") for name in documented} == topics


def test_verbose(mempool: Mempool) -> None:
    shown = mempool("--sim", "1", "doctor", "-v").out.splitlines()
    assert shown[2:4] == [
        "ok    devices       0 NVIDIA H200",
        "                    device 0: 0000:01:00.0 GPU-6090f7d1-e4dd-57e6-9768-669dad3214b8",
    ]


def test_warnings_alone_are_no_failure(mempool: Mempool) -> None:
    for spec in ("pcie-4", "mixed-4", "h100-cc", "asym-3", "no-p2p-2"):
        status, out, err = mempool("--sim", spec, "doctor")
        assert (status, err) == (0, "")
        assert "\nwarn  p2p" in out
        assert "\nfail" not in out


def test_no_device(mempool: Mempool) -> None:
    assert mempool("--sim", "0", "doctor") == (
        3,
        label("0")
        + """\
fail  cuInit  no usable CUDA device
              cuInit = CUDA_ERROR_NO_DEVICE (100)
              try: this simulated machine has no device; `--sim 4` has four
ok    host    a simulated machine has no libcuda, IOMMU, container or hypervisor
""",
        """\
error: cuInit: no usable CUDA device [no-device]
  driver: cuInit = CUDA_ERROR_NO_DEVICE (100)
  try: this simulated machine has no device; `--sim 4` has four
""",
    )


def test_devices_that_are_hidden(mempool: Mempool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "9")
    found = document(mempool("--sim", "2", "doctor", "--format", "json"))
    assert found["error"]["code"] == "no-device"
    assert found["data"]["findings"][0] == {
        "topic": "cuInit",
        "level": "fail",
        "text": "no usable CUDA device; CUDA_VISIBLE_DEVICES='9'",
        "evidence": ["cuInit = CUDA_ERROR_NO_DEVICE (100)"],
        "hint": "set CUDA_VISIBLE_DEVICES to ordinals or UUIDs of this machine, or unset it",
        "code": "no-device",
        "driver": {"call": "cuInit", "code": 100, "name": "CUDA_ERROR_NO_DEVICE"},
    }


def test_a_machine_without_a_driver(
    mempool_process: MempoolProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on one that has it: what stands first in the library path is no library."""
    (tmp_path / "libcuda.so.1").write_text("no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    status, out, err = mempool_process("doctor")
    assert status == 3
    lines = out.splitlines()
    assert lines[0].startswith("ok    bindings    cuda-bindings ")
    assert lines[1] == "fail  libcuda     libcuda.so.1 is there, and cannot be loaded"
    assert f"{tmp_path}/libcuda.so.1 is no library" in out
    assert "warn  cuInit      not called" in lines
    assert err.splitlines()[0] == "error: libcuda: libcuda.so.1 is there, and cannot be loaded [no-driver]"


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has a driver")
def test_this_machine_has_no_libcuda(mempool_process: MempoolProcess) -> None:
    status, out, err = mempool_process("doctor")
    assert status == 3
    assert "fail  libcuda     libcuda.so.1 is not found\n" in out
    assert "looked in LD_LIBRARY_PATH: " in out
    assert "looked in /etc/ld.so.cache: " in out
    assert err.startswith("error: libcuda: libcuda.so.1 is not found [no-driver]\n")


def test_a_terminal_of_80_columns(runtime: Path) -> None:
    status, out, _ = on_terminal(80, "--sim", "h100-cc", "doctor", NO_COLOR="1")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    coloured = on_terminal(80, "--sim", "h100-cc", "doctor").out
    assert "\x1b[" in coloured


# --- the real bindings ---


def doctor(standin: StandIn, socket: str, library: Path | None = None) -> tuple[int, str, str]:
    command = [sys.executable, "-P", "-m", "mempool_cli", "doctor"]
    done = standin.run(command, socket, library=library, PYTHONIOENCODING="utf-8")
    return done.returncode, done.stdout, settled(done.stderr)


@pytest.mark.standin
def test_a_driver_library(standin: StandIn) -> None:
    with standin.machine("pcie-4") as socket:
        status, out, err = doctor(standin, socket)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[1].startswith(f"ok    libcuda       {standin.library.resolve()}")
    assert lines[2] == "ok    cuInit        CUDA 13.0"
    assert "ok    devices       0-3 NVIDIA RTX A6000" in out
    assert "warn  p2p           4 of 12 ordered pairs are capable\n" in out


@pytest.mark.standin
@pytest.mark.parametrize(("code", "name"), [(802, "SYSTEM_NOT_READY"), (999, "UNKNOWN"), (34, "STUB_LIBRARY")])
def test_a_driver_that_does_not_start(standin: StandIn, code: int, name: str) -> None:
    failures = [Failure(call=call, code=code) for call in ("cuInit", *(["cuDriverGetVersion"] if code == 34 else []))]
    with standin.machine("1", failures=failures) as socket:
        status, out, err = doctor(standin, socket)
    assert status == 3
    assert f"cuInit = CUDA_ERROR_{name} ({code})\n" in out
    assert f"ok    libcuda     {standin.library.resolve()}" in out
    assert err.startswith("error: cuInit: the CUDA driver does not start [no-driver]\n")


@pytest.mark.standin
def test_a_driver_that_does_not_say_its_version(standin: StandIn) -> None:
    with standin.machine("1", failures=[Failure(call="cuDriverGetVersion", code=999)]) as socket:
        status, out, err = doctor(standin, socket)
    assert "warn  cuInit        CUDA starts, and the driver does not say its version (cuDriverGetVersion)\n" in out
    assert (status, err) == (0, "")


@pytest.mark.standin
def test_a_driver_before_cuda_12(standin: StandIn) -> None:
    with standin.machine("1", driver_version=11080) as socket:
        status, out, err = doctor(standin, socket, standin.library_before_12)
    assert status == 3
    assert "fail  cuInit      mempool needs a CUDA 12.0 driver; " in out
    assert "[driver-too-old]" in err


@pytest.mark.standin
def test_a_driver_library_in_a_directory_that_is_no_utf8(standin: StandIn, tmp_path: Path) -> None:
    library = tmp_path / os.fsdecode(b"\xff") / "libcuda.so.1"
    library.parent.mkdir()
    shutil.copy(standin.library.resolve(), library)
    with standin.machine("1") as socket:
        status, out, _ = doctor(standin, socket, library)
    assert (status, f"ok    libcuda       {tmp_path}/\N{REPLACEMENT CHARACTER}/libcuda.so.1\n" in out) == (0, True)


@pytest.mark.standin
def test_a_call_after_the_start_is_refused(standin: StandIn) -> None:
    with standin.machine("1", failures=[Failure(call="cuDeviceGetName", code=999)]) as socket:
        status, out, err = doctor(standin, socket)
    assert status == 3
    assert "ok    cuInit      CUDA 13.0\n" in out
    assert "fail  devices     the driver refused cuDeviceGetName\n" in out
    assert "                  cuDeviceGetName = CUDA_ERROR_UNKNOWN (999)\n" in out
    assert err.startswith("error: devices: the driver refused cuDeviceGetName [machine-unfit]\n")


STUB = "int cuGetProcAddress_v2(void);\nint cuGetProcAddress_v2(void) { return 34; }\n"


@pytest.mark.standin
def test_the_stub_of_the_toolkit(standin: StandIn, tmp_path: Path) -> None:
    """As it was measured: it hands out no function."""
    source = tmp_path / "stub.c"
    source.write_text(STUB)
    library = tmp_path / "libcuda.so.1"
    compile_c("-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(source))
    status, out, err = doctor(standin, "", library)
    assert status == 3
    assert f"ok    libcuda     {library}" in out
    assert "fail  cuInit      the libcuda that was loaded has no functions\n" in out
    assert err == (
        "error: cuInit: the libcuda that was loaded has no functions [no-driver]\n"
        "  try: the libcuda that was loaded is the toolkit's stub; put the driver's own libcuda.so.1 first\n"
    )


@pytest.mark.standin
def test_a_driver_that_hangs(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    with standin.machine("1") as socket:
        for name, value in machine_environment(standin.library.parent, socket).items():
            monkeypatch.setenv(name, value)
        with standin.frozen():
            failure = look(driver_source(None), limit=3).failure
    assert failure is not None
    assert failure.code == "trial-failed"
    assert failure.message.startswith(
        "the driver does not answer: the process did not end in time and was killed in cu"
    )


@pytest.mark.standin
def test_a_card_whose_name_is_bytes(standin: StandIn) -> None:
    with standin.machine("1", answers={"cuDeviceGetName": [0, b"\xf8 [bold]X\0".hex()]}) as socket:
        status, out, _ = doctor(standin, socket)
    assert status == 0
    assert "ok    devices       0 \N{REPLACEMENT CHARACTER} [bold]X\n" in out
