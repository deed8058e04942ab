"""Options that take devices: every spelling of a set, and what is no set."""

from __future__ import annotations

import pytest

from .conftest import Mempool
from .documents import document

ONE = "GPU-e60664c9-5fa7-55d3-b3e9-2383ca5faf7d"


def granted(mempool: Mempool, *words: str) -> tuple[str, list[int]]:
    """The pool, and who would get access to it."""
    data = document(mempool("--sim", "6", "--format", "json", "grant", "--dry-run", *words))["data"]
    return data["pool"]["name"], data["granted"]


@pytest.mark.parametrize(
    ("words", "devices"),
    [
        ("0 --to 1", [1]),
        ("0 --to 1 2", [1, 2]),
        ("0 --to 2 1", [1, 2]),
        ("0 --to 1,2", [1, 2]),
        ("0 --to 1-3", [1, 2, 3]),
        ("0 --to 2-2", [2]),
        ("0 --to 1-2 4,5", [1, 2, 4, 5]),
        ("0 --to 1-2,5", [1, 2, 5]),
        ("0 --to=1 2", [1, 2]),
        ("0 --to=1,2 3", [1, 2, 3]),
        ("0 --to 1 --to 2", [1, 2]),
        ("0 --to 1 1 1,1-1", [1]),
        ("0 --to 0 1", [1]),
        ("0 --to all", [1, 2, 3, 4, 5]),
        ("0 --to peers", [1, 2, 3, 4, 5]),
        ("0 --to 01", [1]),
        (f"0 --to {ONE} 2", [1, 2]),
        (f"0 --to {ONE[:8].upper()}", [1]),
        ("0 --to 0000:03:00.0,2", [1, 2]),
        ("0 --to 00000000:03:00.0", [1]),
        ("0 --to 1 2 --only", [1, 2]),
        ("0 --only --to 1 2", [1, 2]),
        ("--only 0 --to 1 2", [1, 2]),
        ("--to 1 2 -- 0", [1, 2]),
        ("--to=1 --only 0", [1]),
        ("default:3 --to 1", [1]),
    ],
)
def test_spellings(mempool: Mempool, words: str, devices: list[int]) -> None:
    pool = "default:3" if words.startswith("default:3") else "default:0"
    assert granted(mempool, *words.split()) == (pool, devices)


def test_devices_after_which_a_global_option_stands(mempool: Mempool) -> None:
    done = mempool("grant", "0", "--to", "1", "2", "--dry-run", "--sim", "3")
    assert done.out.splitlines()[1] == (
        "pool default:0: access would be granted to devices 1-2 (dry run, no call made)"
    )


NOTHING = "error: --to needs at least one device and got nothing [usage]\n  try: see `mempool grant --help`\n"
EMPTY = "error: --to needs at least one device and got an empty word [usage]\n  try: see `mempool grant --help`\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("0", "--to"), NOTHING),
        (("0", "--to", "--only"), NOTHING.replace("nothing", "nothing before '--only'")),
        (("0", "--to", "--", "1"), NOTHING.replace("nothing", "nothing before '--'")),
        (("0", "--to", "-1"), NOTHING.replace("nothing", "nothing before '-1'")),
        (("0", "--to", "1", "--to"), NOTHING),
        (("0", "--to", ""), EMPTY),
        (("0", "--to", "", "--only"), EMPTY),
        (("0", "--to="), EMPTY),
        (("0", "--to=", "--only"), EMPTY),
        (("0", "--to", "1", ""), EMPTY),
    ],
    ids=repr,
)
def test_no_devices(mempool: Mempool, words: tuple[str, ...], error: str) -> None:
    assert mempool("--sim", "4", "grant", *words) == (2, "", error)


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("3-1", "'3-1' is no range of devices"),
        ("0-4096", "'0-4096' is no range of devices"),
        ("0-999999999", "'0-999999999' is no range of devices"),
        ("1,", "'1,' has an empty place where a device should be"),
        (",1", "',1' has an empty place where a device should be"),
        ("1,,2", "'1,,2' has an empty place where a device should be"),
        (" ", "' ' has an empty place where a device should be"),
    ],
)
def test_words_that_are_no_devices(mempool: Mempool, word: str, what: str) -> None:
    assert mempool("--sim", "4", "grant", "0", "--to", word) == (
        2,
        "",
        f"error: Invalid value for '--to': {what} [usage]\n  try: see `mempool grant --help`\n",
    )


@pytest.mark.parametrize("word", ["1-", "1-2-3", "0-9999999999", "one", "0x1", "1.0", "+1", "¹", "GPU-", "host"])
def test_words_that_name_no_device(mempool: Mempool, word: str) -> None:
    status, out, err = mempool("--sim", "4", "grant", "0", "--to", word)
    assert (status, out) == (2, "")
    assert err.splitlines()[1] == f"error: {word!r} names no device [unknown-device]"
    assert mempool("--sim", "4", "session", "list").out == "no session runs\n"


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("4", "there is no device 4: devices 0 to 3 are visible"),
        ("2-5", "there is no device 4: devices 0 to 3 are visible"),
        ("GPU-ffff", "no visible device is GPU-ffff: devices 0 to 3 are visible"),
        ("0000:ff:00.0", "no visible device is 0000:ff:00.0: devices 0 to 3 are visible"),
    ],
)
def test_devices_that_are_not_there(mempool: Mempool, word: str, what: str) -> None:
    status, out, err = mempool("--sim", "4", "grant", "0", "--to", word)
    assert (status, out) == (2, "")
    assert err.splitlines()[1] == f"error: {what} [unknown-device]"


@pytest.mark.parametrize(("command", "option"), [("grant", "--to"), ("revoke", "--from")])
def test_a_missing_pool_says_where_it_belongs(mempool: Mempool, command: str, option: str) -> None:
    assert mempool("--sim", "4", command, option, "1", "2") == (
        2,
        "",
        f"error: missing POOL: it comes before {option}, which takes every word after it"
        f" (mempool {command} POOL {option} DEV...) [usage]\n  try: see `mempool {command} --help`\n",
    )


def test_a_missing_location_says_where_it_belongs(mempool: Mempool) -> None:
    assert mempool("--sim", "4", "create", "--to", "1", "2").err.startswith(
        "error: missing LOCATION: it comes before --to, which takes every word after it"
    )


def test_a_new_pool_takes_the_same_words(mempool: Mempool) -> None:
    done = mempool("--sim", "4", "--no-session", "create", "0", "--to", "1-2", "3", "--format", "json")
    assert document(done)["data"]["granted"] == [1, 2, 3]


@pytest.mark.parametrize("words", [("--from", "1", "2"), ("--from=1", "2"), ("--from", "1,2"), ("--from", "1-2")])
def test_revoke_takes_the_same_words(mempool: Mempool, words: tuple[str, ...]) -> None:
    assert mempool("--sim", "4", "grant", "0", "--to", "all").status == 0
    done = mempool("--sim", "4", "revoke", "0", *words, "--format", "json")
    assert document(done)["data"]["revoked"] == [1, 2]
