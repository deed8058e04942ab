"""A program's own agent: the `mempool` command line asks and changes the pools of this process through it.

`mempool exec` starts one in the program that it runs. A program that was started otherwise, a notebook say, calls
`start("train")`; from then on `mempool --session train probe --matrix` and the like are about this process. Nothing
here loads CUDA or calls the driver.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys

from mempool_cli import __version__
from mempool_cli.agent import named
from mempool_cli.agent.orders import Orders, mark_children, received

# Not typing's, which takes longer to import than the rest of an agent's start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mempool_cli.agent.door import Door

_door: Door | None = None
_hooked = False
_fork_allowed = False
_one_at_a_time = _thread.allocate_lock()


def start(name: str = "program") -> str:
    """Starts the agent of this process; the name under which it is reached, `name` or `name.PID` when that is taken.

    Where one runs already, the name of that one. The agent is a thread that waits for clients; it makes no context,
    never initialises CUDA, and ends with the process or `stop`. MempoolError `bad-name`; `runtime-directory` when
    its files cannot be made; `session-start` when there is no free name. No driver call.
    """
    from mempool_cli.errors import MempoolError
    from mempool_cli.session.directory import check_name

    check_name(name)
    with _one_at_a_time:
        if _door is not None and _door.usable:
            return _door.name
        try:
            return _open(Orders(name)).name
        except FileExistsError as error:
            raise MempoolError("session-start", str(error)) from error
        except OSError as error:
            raise MempoolError("runtime-directory", f"the agent's files cannot be made: {error}") from error


def stop() -> None:
    """Ends the agent of this process, if one runs, after the request that it works on; pools that clients created go.

    What they granted on the program's own pools stays granted.
    """
    with _one_at_a_time:
        if _door is not None:
            _door.leave()


def name_pool(name: str, pool: Any, *, on: str | int | None = None) -> None:
    """Lets clients name a pool of this program: `mempool --session train grant NAME --to 1`.

    `pool` is an object with a `handle`, as cuda-core's memory resources have, or one whose `int()` is the handle, as
    CUmemoryPool. `on` is where it is, `0`, `"host"` or `"numa:0"`; by default on the pool's `device_id`. An object with
    a `handle` is held weakly, and its pool is gone here when it is closed or collected; a bare handle has to be
    forgotten before its pool is destroyed. The name replaces an earlier one. MempoolError `bad-name`; TypeError when
    it has no handle or nothing says where it is, ValueError when `on` is no place for it. No driver call.
    """
    named.add(name, pool, on)


def forget_pool(name: str) -> None:
    """Clients can no longer name this pool; nothing when it was not named."""
    named.remove(name)


def join() -> None:
    """Starts the agent that `mempool exec` asked this interpreter for; nothing when it asked for none.

    ImportError when NVIDIA's bindings are missing or too old, RuntimeError for another version of mempool, and what
    `start` raises.
    """
    orders = received()
    if orders is None:
        return
    from mempool_cli.agent.bindings import check_bindings
    from mempool_cli.agent.children import hand_on

    hand_on()
    mark_children()
    if orders.version != __version__:
        raise RuntimeError(f"`mempool exec` is {orders.version}, and here is mempool {__version__}")
    check_bindings()
    door = _open(orders)
    orders.report(f"agent {door.name}")
    if door.name != orders.name and not orders.in_child:
        door.tell("this is its name: another has the shorter one")


def _open(orders: Orders) -> Door:
    global _door, _hooked
    from mempool_cli.agent.door import Door

    _door = Door.open(orders)
    if not _hooked:
        _hooked = True
        atexit.register(_at_exit)
        os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_forked_child)
    return _door


def _at_exit() -> None:
    if _door is not None:
        try:
            _door.leave(exiting=True)
        except KeyboardInterrupt:
            return  # who is impatient now has no need of the rest


def _before_fork() -> None:
    if _door is not None and _door.alive:
        _door.before_fork()
        if sys.version_info >= (3, 12):
            _allow_fork()


def _allow_fork() -> None:
    """Once a process: no warning that it has threads, if our thread is the only one besides the one that forks.

    Once, since each change of the filters makes Python forget which warnings it has shown.
    """
    global _fork_allowed
    if _fork_allowed:
        return
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:
        return
    if threads <= 2:
        import warnings

        _fork_allowed = True
        warnings.filterwarnings("ignore", r"This process \(pid=\d+\) is multi-threaded", DeprecationWarning)


def _after_fork() -> None:
    if _door is not None:
        _door.after_fork()


def _in_forked_child() -> None:
    global _door, _one_at_a_time
    _one_at_a_time = _thread.allocate_lock()
    if _door is not None:
        _door.abandon()
        _door = None
