"""The contract's world through the real bindings: on hardware, or on the stand-in library."""

from __future__ import annotations

from mempool_cli.driver.cuda import CudaDriver

from contract import World


def bindings_world() -> World:
    """The driver of this process, after cuInit."""
    from cuda.bindings import driver as cuda

    driver = CudaDriver()
    driver.init()
    code, memory = cuda.cuDeviceTotalMem(0)
    assert not code
    return World(driver, int(memory))
