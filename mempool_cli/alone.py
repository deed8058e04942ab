"""Whether anybody else uses the cards of this machine, so that a kernel must not be made to fault."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Collection

from mempool_cli.errors import MempoolError
from mempool_cli.machine import mps_runs
from mempool_cli.mps import control_pipe

_SECONDS = 20
_ASK = ["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,name", "--format=csv,noheader"]


def check_alone(uuids: Collection[str] | None = None) -> None:
    """MempoolError `usage` unless nobody else uses these cards (None: any card), as far as can be told.

    A fault kills the other clients of an MPS server, and writes an Xid that health monitors act on.
    """
    pipe = control_pipe()
    if mps_runs() is not False or pipe:
        raise _refused(f"an MPS server runs here{f' ({pipe})' if pipe else ''}, whose other clients a fault would kill")
    if shutil.which("nvidia-smi") is None:
        raise _refused("without nvidia-smi it cannot be told whether others use the cards")
    try:
        done = subprocess.run(_ASK, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refused(f"nvidia-smi does not say whether others use the cards: {error}") from error
    if done.returncode:
        raise _refused(f"nvidia-smi does not say whether others use the cards: {done.stdout.strip()}")
    others = [line for line in done.stdout.strip().splitlines() if uuids is None or _is_of(line, uuids)]
    if others:
        raise _refused(f"other processes use the cards: {'; '.join(others)}")


def _is_of(line: str, uuids: Collection[str]) -> bool:
    """Whether a line is about one of these. A process on a MIG instance is listed under its card, or with no card."""
    uuid = line.partition(",")[0].strip()
    return uuid in uuids or not uuid.startswith("GPU-") or any(each.startswith("MIG-") for each in uuids)


def _refused(why: str) -> MempoolError:
    return MempoolError("usage", f"--allow-faults is refused: {why}", hint="without it nothing is made to fault")
