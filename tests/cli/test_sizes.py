"""Sizes as people write them: exact, or refused."""

from __future__ import annotations

import pytest

from .conftest import Mempool
from .documents import document

KB, KIB = 1000, 1024


def create(mempool: Mempool, option: str, size: str) -> int | None:
    """The size that a new pool got."""
    done = mempool("--sim", "1", "--no-session", "create", "0", option, size, "--format", "json")
    found: int | None = document(done)["data"][option[2:].replace("-", "_")]
    return found


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("1", 1),
        ("1048576", 1 << 20),
        ("512B", 512),
        ("1kB", KB),
        ("1KB", KB),
        ("1MB", KB**2),
        ("1GB", KB**3),
        ("0.01TB", KB**4 // 100),
        ("1KiB", KIB),
        ("1MiB", KIB**2),
        ("1GiB", KIB**3),
        ("0.5TiB", KIB**4 // 2),
        ("1.5GiB", 3 << 29),
        ("0.5KiB", 512),
        ("64mib", 64 << 20),
        ("64 MiB", 64 << 20),
        (" 64MiB ", 64 << 20),
        ("0.001kB", 1),
    ],
)
def test_units(mempool: Mempool, size: str, count: int) -> None:
    assert create(mempool, "--max-size", size) == count


@pytest.mark.parametrize("size", ["18446744073709551615", "17179869183.999999GiB", "16EiB"])
def test_the_release_threshold_goes_to_the_end_of_its_type(mempool: Mempool, size: str) -> None:
    done = mempool("--sim", "1", "--no-session", "create", "0", "--release-threshold", size, "--format", "json")
    if size == "18446744073709551615":
        assert document(done)["data"]["release_threshold"] == 2**64 - 1
    else:
        assert document(done)["error"]["code"] == "usage"


LARGEST = {"--max-size": "4611686018427387904", "--release-threshold": "18446744073709551615"}


@pytest.mark.parametrize(
    ("size", "what"),
    [
        ("1G", "'1G' has two readings; write 1GiB or 1GB"),
        ("1k", "'1k' has two readings; write 1KiB or 1KB"),
        ("1.5t", "'1.5t' has two readings; write 1.5TiB or 1.5TB"),
        ("64m", "'64m' has two readings; write 64MiB or 64MB"),
        ("1PiB", "'1PiB': there is no unit 'PiB'; use KiB, MiB, GiB, TiB, kB, MB, GB, TB"),
        ("1GiBs", "'1GiBs': there is no unit 'GiBs'; use KiB, MiB, GiB, TiB, kB, MB, GB, TB"),
        ("0.5", "'0.5' is no whole number of bytes"),
        ("0.0001kB", "'0.0001kB' is no whole number of bytes"),
        ("0.1KiB", "'0.1KiB' is no whole number of bytes"),
        ("18446744073709551616", "'18446744073709551616' is more than LARGEST bytes"),
        ("16777216TiB", "'16777216TiB' is more than LARGEST bytes"),
        ("99999999999999999999TiB", "'99999999999999999999TiB' is more than LARGEST bytes"),
        *(
            (size, f"{size!r} is no size; write 1048576, 64MiB, 64MB, 1GiB")
            for size in (
                "",
                "-1",
                "+1",
                "1e9",
                "1_000",
                "1,5GiB",
                ".5GiB",
                "GiB",
                "0x10",
                "½GiB",
                "\u0661",
                "nan",
                "9" * 21,
            )
        ),
    ],
)
@pytest.mark.parametrize("option", ["--max-size", "--release-threshold"])
def test_sizes_that_are_none(mempool: Mempool, option: str, size: str, what: str) -> None:
    assert mempool("--sim", "1", "create", "0", option, size) == (
        2,
        "",
        f"error: Invalid value for '{option}': {what.replace('LARGEST', LARGEST[option])} [usage]\n"
        "  try: see `mempool create --help`\n",
    )
