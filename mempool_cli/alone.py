"""Whether this machine is one on which a kernel may be made to fault."""

from __future__ import annotations

import shutil
import subprocess

from mempool_cli.errors import MempoolError
from mempool_cli.repro.machine import mps_runs

_SECONDS = 20


def check_alone() -> None:
    """MempoolError `usage` unless nobody else uses the cards, as far as can be told.

    A fault kills the other clients of an MPS server, and writes an Xid that health monitors act on.
    """
    if mps_runs() is not False:
        raise _refused("an MPS server runs here, whose other clients a fault would kill")
    if shutil.which("nvidia-smi") is None:
        raise _refused("without nvidia-smi it cannot be told whether others use the cards")
    asked = ["nvidia-smi", "--query-compute-apps=pid,name", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refused(f"nvidia-smi does not say whether others use the cards: {error}") from error
    if done.returncode:
        raise _refused(f"nvidia-smi does not say whether others use the cards: {done.stdout.strip()}")
    if done.stdout.strip():
        raise _refused(f"other processes use the cards: {'; '.join(done.stdout.strip().splitlines())}")


def _refused(why: str) -> MempoolError:
    return MempoolError("usage", f"--allow-faults is refused: {why}", hint="without it `enforced` stays untested")
