"""Driver bugs, proved or ruled out: descriptions of them, an interpreter, and the verdicts."""

from __future__ import annotations

import importlib
import pkgutil

from mempool_cli.errors import MempoolError
from mempool_cli.repro import bugs
from mempool_cli.repro.language import Bug

DEFAULT = "recycled-handle"


def every_bug() -> dict[str, Bug]:
    """All descriptions by their id, in the order of ids."""
    modules = sorted(module.name for module in pkgutil.iter_modules(bugs.__path__))
    found: list[Bug] = [importlib.import_module(f"{bugs.__name__}.{name}").BUG for name in modules]
    return {bug.id: bug for bug in found}


def find_bug(name: str) -> Bug:
    """The description of this id; MempoolError `unknown-bug`."""
    known = every_bug()
    if name not in known:
        raise MempoolError(
            "unknown-bug", f"there is no reproduction {name!r}: {', '.join(known)}", hint="`mempool repro --list`"
        )
    return known[name]
