"""Machines and answers that the tests of this folder show."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from mempool_cli.errors import DriverWords, Problem
from mempool_cli.model import (
    Access,
    AccessMatrix,
    Answer,
    AnyResult,
    Cell,
    Device,
    DeviceDetail,
    DriverInfo,
    Pool,
    Role,
    Row,
    Session,
    Where,
)
from mempool_cli.render import Output, emit

TABLE = Output()
MATRIX = Output(matrix=True)

CUDA = DriverInfo(kind="cuda", cuda_version="13.0", bindings="13.5.0")
SIM = DriverInfo(kind="sim", cuda_version="13.0", sim="4")
LOCAL = Where(kind="local", pid=4242)
SESSION = Where(kind="session", pid=4242, name="default", expires="2026-12-01T04:20:00Z")
PROGRAM = Where(kind="program", pid=977, name="train")


def device(ordinal: int, *, name: str = "NVIDIA H200", pools: bool = True) -> Device:
    return Device(ordinal=ordinal, uuid=uuid(ordinal), pci_bus_id=bus(ordinal), name=name, pools_supported=pools)


def detail(ordinal: int, peers: tuple[int, ...], *, name: str = "NVIDIA H200", host: bool = True) -> DeviceDetail:
    return DeviceDetail(
        ordinal=ordinal,
        uuid=uuid(ordinal),
        pci_bus_id=bus(ordinal),
        name=name,
        pools_supported=True,
        compute_capability="9.0",
        host_pools_supported=host,
        host_numa_pools_supported=True,
        pool_handle_types=9,
        host_numa_id=0,
        peers=peers,
    )


def uuid(ordinal: int) -> str:
    return f"GPU-{ordinal:08x}-0000-4000-8000-000000000000"


def bus(ordinal: int) -> str:
    return f"0000:{0x19 + ordinal:02x}:00.0"


def pool(name: str, owner: int | None = 0, roles: tuple[Role, ...] = ("created",), location: str = "") -> Pool:
    return Pool(name=name, roles=roles, location=location or str(owner), owner=owner)


DEFAULT = pool("default:0", 0, ("default", "current"))
FLAGS: dict[Access, int | None] = {"rw": 3, "r": 1, "none": 0, "unknown": 7}


def cell(number: int | None, access: Access | None, *, capable: bool | None = True, owner: bool = False) -> Cell:
    flags = None if access is None else FLAGS[access]
    return Cell(device=number, access=access, flags=flags, capable=None if owner else capable, owner=owner)


def refused(number: int | None) -> Cell:
    words = DriverWords(call="cuMemPoolGetAccess", code=999, name="CUDA_ERROR_UNKNOWN")
    return Cell(device=number, error=Problem(code="driver-refused", message="not answered", driver=words))


HOST_NONE = cell(None, "none", capable=None)
HOST_RW = cell(None, "rw", capable=None)
HOST_NOT_ASKED = cell(None, None, capable=None)


def row(of: Pool, *cells: Cell, host: Cell = HOST_NONE) -> Row:
    return Row(pool=of, cells=cells, host=host)


def square(count: int) -> AccessMatrix:
    """Every device has its default pool; each grants its right-hand neighbour."""
    rows = []
    for owner in range(count):
        cells = (cell(at, "rw" if at in (owner, owner + 1) else "none", owner=at == owner) for at in range(count))
        rows.append(row(pool(f"default:{owner}", owner, ("default", "current")), *cells))
    return AccessMatrix(devices=tuple(device(at) for at in range(count)), rows=tuple(rows))


def everything() -> AccessMatrix:
    """One cell of each kind."""
    old = "NVIDIA GeForce GTX 750"
    return AccessMatrix(
        devices=(device(0), device(1), device(2), device(3), device(4, name=old, pools=False)),
        rows=(
            row(
                DEFAULT,
                cell(0, "rw", owner=True),
                cell(1, "rw"),
                cell(2, "rw", capable=False),
                cell(3, "none", capable=False),
                cell(4, None),
            ),
            row(
                pool("default:1", 1, ("default",)),
                cell(0, "r"),
                cell(1, "none", owner=True),
                cell(2, "none"),
                cell(3, "unknown"),
                cell(4, None),
            ),
            row(
                pool("default:4", 4, ("default", "current")),
                *(cell(at, None, capable=None) for at in range(5)),
                host=HOST_NOT_ASKED,
            ),
            row(
                pool("staging", None, location="numa:0"),
                cell(0, "rw"),
                refused(1),
                cell(2, "unknown", capable=False),
                cell(3, "none"),
                cell(4, None),
                host=HOST_RW,
            ),
        ),
    )


def session(*, sim: str | None = None, pools: tuple[str, ...] = (), name: str = "default") -> Session:
    return Session(
        kind="session",
        name=name,
        pid=4242,
        version="0.1.0",
        sim=sim,
        started="2026-12-01T03:50:00Z",
        expires="2026-12-01T04:20:00Z",
        idle_timeout=1800,
        pools=pools,
    )


def answer(
    result: AnyResult | None, where: Where | None = None, *, driver: DriverInfo = CUDA, failure: Problem | None = None
) -> Answer:
    return Answer(driver=driver, where=where, result=result, failure=failure)


def emitted(shown: Answer, output: Output = TABLE) -> tuple[int, str, str]:
    """Exit status, stdout and stderr, neither of them a terminal."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = emit("probe", shown, output=output)
    return status, out.getvalue(), err.getvalue()


def out_of(shown: Answer, output: Output = TABLE) -> str:
    """stdout of an answer that is as it should be: exit status 0, stderr empty."""
    status, out, err = emitted(shown, output)
    assert (status, err) == (0, "")
    return out
