"""Where libcuda.so.1 is looked for, as dlopen does it, and which of the files found there could be it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from typing import NamedTuple

from mempool_cli.doctor.sources import Sources

LIBCUDA = "libcuda.so.1"
WSL_DIRECTORY = "/usr/lib/wsl/lib"
_DEFAULT_DIRECTORIES = (
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
)
_CONFIGURATION = "/etc/ld.so.conf"
_CACHE = "/etc/ld.so.cache"
_CACHED = re.compile(rf"(/[^\0]*/{re.escape(LIBCUDA)})\0")
_CACHED_SAYS = {True: f"lists {LIBCUDA}", False: f"does not list {LIBCUDA}"}
_ELF = b"\x7fELF"


class Search(NamedTuple):
    """`places`: what was looked through; `files`: libraries of that name; `broken`: files that are no library."""

    places: tuple[str, ...]
    files: tuple[str, ...]
    broken: tuple[str, ...]


def search(sources: Sources) -> Search:
    """Every libcuda.so.1 that can be found without loading anything."""
    path = [part for part in re.split("[:;]", sources.environment.get("LD_LIBRARY_PATH", "")) if part]
    configured = list(dict.fromkeys(_configured(sources, _CONFIGURATION)))
    cached = _CACHED.findall(f"{sources.text(_CACHE) or ''}\0")
    directories = [*path, *configured, *_DEFAULT_DIRECTORIES, WSL_DIRECTORY]
    candidates = [f"{directory.rstrip('/')}/{LIBCUDA}" for directory in directories]
    found = list(dict.fromkeys(file for file in (*candidates, *cached) if sources.exists(file)))
    broken = [file for file in found if sources.head(file, 4) != _ELF]
    places = (
        f"LD_LIBRARY_PATH: {':'.join(path) or 'not set'}",
        f"{_CACHE}: {_CACHED_SAYS[bool(cached)] if sources.exists(_CACHE) else 'not there'}",
        f"{_CONFIGURATION}: {', '.join(configured) or 'names no directory'}",
        f"{', '.join(_DEFAULT_DIRECTORIES)}",
        f"{WSL_DIRECTORY}, where WSL has it",
    )
    return Search(places, tuple(file for file in found if file not in broken), tuple(broken))


def _configured(sources: Sources, file: str, depth: int = 0) -> Iterator[str]:
    """The directories that ld.so.conf names, those of what it includes too."""
    for line in (sources.text(file) or "").splitlines():
        word, _, rest = line.partition("#")[0].strip().partition(" ")
        if word == "include" and depth < 2:
            directory, _, pattern = rest.strip().rpartition("/")
            for name in fnmatch.filter(sources.names(directory or "/etc"), pattern):
                yield from _configured(sources, f"{directory or '/etc'}/{name}", depth + 1)
        elif word.startswith("/"):
            yield word
