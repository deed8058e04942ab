from __future__ import annotations

from mempool_cli.model import (
    AccessMatrix,
    Attribute,
    DeviceDetail,
    DeviceList,
    PoolDetail,
    PoolList,
    PoolSummary,
)

from render_samples import (
    DEFAULT,
    LOCAL,
    PROGRAM,
    SESSION,
    SIM,
    answer,
    cell,
    detail,
    device,
    emitted,
    everything,
    out_of,
    pool,
    row,
)


def test_devices() -> None:
    shown = DeviceList(
        devices=(
            detail(0, (1, 2, 3, 5)),
            detail(1, (0, 2), host=False),
            DeviceDetail(
                ordinal=2,
                uuid="GPU-2",
                pci_bus_id="0000:1b:00.0",
                name="NVIDIA GeForce GTX 750",
                pools_supported=False,
                compute_capability="5.0",
                host_pools_supported=False,
                host_numa_pools_supported=False,
                pool_handle_types=0,
                host_numa_id=-1,
                peers=(),
            ),
        )
    )
    assert (
        out_of(answer(shown, LOCAL))
        == """\
device  name                    bus id        uuid                                      pools  host pools  peers
0       NVIDIA H200             0000:19:00.0  GPU-00000000-0000-4000-8000-000000000000  yes    yes         1-3, 5
1       NVIDIA H200             0000:1a:00.0  GPU-00000001-0000-4000-8000-000000000000  yes    numa only   0, 2
2       NVIDIA GeForce GTX 750  0000:1b:00.0  GPU-2                                     no     no          -
"""
    )


def test_no_devices() -> None:
    assert out_of(answer(DeviceList(devices=()))) == "no devices\n"


def test_pools() -> None:
    shown = PoolList(
        pools=(
            PoolSummary(pool=DEFAULT, used_bytes=0, reserved_bytes=3 << 20, release_threshold=0, max_size=None),
            PoolSummary(
                pool=pool("staging", None, location="host"),
                used_bytes=1500,
                reserved_bytes=1 << 25,
                release_threshold=2**64 - 1,
                max_size=0,
            ),
            PoolSummary(
                pool=pool("odd", 1, ()), used_bytes=None, reserved_bytes=None, release_threshold=None, max_size=1 << 30
            ),
        )
    )
    assert (
        out_of(answer(shown, SESSION, driver=SIM))
        == """\
SIMULATED machine 4: no hardware was asked
pool       kind             on    used     reserved  threshold  max size
default:0  default,current  0     0 B      3 MiB     0 B        -
staging    created          host  1.5 KiB  32 MiB    keep all   driver default
odd        -                1     -        -         -          1 GiB

as session default (pid 4242) sees it; other processes have pools of their own
"""
    )


def test_no_pools() -> None:
    assert out_of(answer(PoolList(pools=()))) == "no pools\n"
    assert out_of(answer(AccessMatrix(devices=(), rows=()))) == "no pools\n"


def test_one_pool() -> None:
    shown = PoolDetail(
        pool=DEFAULT,
        made_by="driver",
        devices=tuple(device(at) for at in range(4)),
        attributes=(
            Attribute("reuse_follow_event_dependencies", 1),
            Attribute("reuse_allow_opportunistic", 0),
            Attribute("reuse_allow_internal_dependencies", 7),
            Attribute("release_threshold", 2**64 - 1),
            Attribute("used_mem_current", 1 << 26),
        ),
        max_size=None,
        row=row(
            DEFAULT,
            cell(0, "rw", owner=True),
            cell(1, "rw", capable=False),
            cell(2, "none", capable=False),
            cell(3, "unknown"),
        ),
    )
    assert (
        out_of(answer(shown, PROGRAM))
        == """\
pool                               default:0
kind                               default,current
on                                 device 0
made by                            the driver
max size                           -
reuse_follow_event_dependencies    on
reuse_allow_opportunistic          off
reuse_allow_internal_dependencies  7
release_threshold                  keep all
used_mem_current                   64 MiB

device  access              name         bus id        uuid
0       owner               NVIDIA H200  0000:19:00.0  GPU-00000000-0000-4000-8000-000000000000
1       RW but not capable  NVIDIA H200  0000:1a:00.0  GPU-00000001-0000-4000-8000-000000000000
2       not capable         NVIDIA H200  0000:1b:00.0  GPU-00000002-0000-4000-8000-000000000000
3       unknown (0x7)       NVIDIA H200  0000:1c:00.0  GPU-00000003-0000-4000-8000-000000000000
host    none                -            -             -

as program train (pid 977) sees it; other processes have pools of their own
"""
    )


def test_one_pool_with_a_cell_that_the_driver_refused() -> None:
    machine = everything()
    shown = PoolDetail(
        pool=machine.rows[3].pool,
        made_by="mempool",
        devices=machine.devices[:2],
        attributes=(),
        max_size=1 << 30,
        row=machine.rows[3],
    )
    expected = """\
pool      staging
kind      created
on        numa:0
made by   mempool
max size  1 GiB

device  access                                         name         bus id        uuid
0       RW                                             NVIDIA H200  0000:19:00.0  GPU-00000000-0000-4000-8000-000000000000
1       cuMemPoolGetAccess = CUDA_ERROR_UNKNOWN (999)  NVIDIA H200  0000:1a:00.0  GPU-00000001-0000-4000-8000-000000000000
2       unknown (0x7) but not capable                  -            -             -
3       none                                           -            -             -
4       no pool support                                -            -             -
host    RW                                             -            -             -
"""  # noqa: E501 - what the user sees
    status, out, err = emitted(answer(shown))
    assert (status, out) == (4, expected)
    assert (
        err
        == """\
error: 1 of 6 cells could not be read [unreadable-cells]
  driver: cuMemPoolGetAccess = CUDA_ERROR_UNKNOWN (999)
"""
    )


def test_permissions_one_line_a_pool() -> None:
    status, out, err = emitted(answer(everything(), LOCAL))
    assert status == 4
    expected = """\
pool       kind             on      access
default:0  default,current  0       owner 0; RW 1; RW but not capable 2; not capable 3; no pool support 4
default:1  default          1       owner with none 1; R 0; none 2; no pool support 4; unknown (0x7) 3
default:4  default,current  4       no pool support
staging    created          numa:0  RW 0; none 3; no pool support 4; unknown (0x7) but not capable 2; unreadable 1; host RW

no session was asked: in a new process pools start ungranted
a program's pools are its own: see `mempool exec`
"""  # noqa: E501 - what the user sees
    assert out == expected
    assert err.startswith("error: 1 of 24 cells could not be read [unreadable-cells]\n")
