"""Whether NVIDIA's bindings are here, found out without importing them."""

from __future__ import annotations

import os
from importlib.machinery import PathFinder

_OLDEST = (12, 9)


def check_bindings() -> None:
    """ImportError when they are not installed, or too old."""
    cuda = PathFinder.find_spec("cuda")
    places = cuda.submodule_search_locations if cuda else None
    bindings = PathFinder.find_spec("cuda.bindings", list(places)) if places else None
    if bindings is None or bindings.origin is None:
        raise ImportError("NVIDIA's bindings are not installed: pip install 'cuda-bindings>=12.9,<14'")
    version = _version(os.path.join(os.path.dirname(bindings.origin), "_version.py"))
    found = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if found and found < _OLDEST:
        raise ImportError(f"NVIDIA's bindings are {version}, and have to be 12.9 or newer")


def _version(path: str) -> str:
    """The version that a file states; empty when it does not."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            _, _, after = file.read().partition("__version__ = version = '")
    except OSError:
        return ""
    return after.partition("'")[0]
