"""Input that is wrong: the message names it and what would be right, exit 2, and nothing has happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Done, Mempool, MempoolProcess
from .machines import FOUR, label, machine

NAMES = (
    "a letter or _, then up to 63 letters, digits, '_', '.' or '-';"
    " not host, numa, all, peers, default, current, GPU-..., MIG-..."
)
POOLS = "a pool is a name that `create` gave it, a device (0: its default pool), default:0 or current:0"
DEVICES = "a device is an ordinal (0), a UUID or its beginning (GPU-8fc8), or a PCI bus id (0000:19:00.0)"
SPECS = (
    "SPEC is a number of devices, a profile (asym-3, dgx-h200, h100-cc, h200, mixed-4, no-p2p-2, pcie-4),"
    " or a TOML file (with a / or ending in .toml); then ,fault=NAME or ,fault=NAME:OWNER-ACCESSOR"
)
PAIR = "mirror:1-0 is memory of device 1 that device 0 accesses, mirror:host-0 memory of the host"
KEYS = (
    "the keys are description, driver_version, numa_nodes, device (name, count, memory, compute_capability, pools,"
    " host_pools, host_numa_pools, host_numa_id, pageable_memory_access,"
    " compute_mode = default|prohibited|exclusive-process, uuid, pci_bus_id),"
    " p2p (all, groups, pairs),"
    " failure (call, code, device, after, times)"
)


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("nope", "'nope'"),
        ("Default:0", "'Default:0'"),
        ("[red]x[/red]", "'[red]x[/red]'"),
        (":ab:", "':ab:'"),
        ("a\nb", r"'a\nb'"),
        ("\x1b[31mx", r"'\x1b[31mx'"),
        ("\N{RIGHT-TO-LEFT OVERRIDE}x", r"'\u202ex'"),
        ("it's", '"it\'s"'),
        ("é", "'é'"),
        ("-", "'-'"),
        ("pool 1", "'pool 1'"),
        ("0x0", "'0x0'"),
        ("+1", "'+1'"),
        ("1.0", "'1.0'"),
        ("numa:0", "'numa:0'"),
    ],
)
@pytest.mark.parametrize("command", ["probe", "show", "destroy", "set-current"])
def test_unknown_pools(mempool: Mempool, command: str, word: str, shown: str) -> None:
    assert mempool("--sim", "4", "--no-session", command, word) == (
        2,
        "",
        label("4") + f"error: there is no pool {shown}; created here: none [unknown-pool]\n  try: {POOLS}\n",
    )


@pytest.mark.parametrize("word", ["default:", "current:", "default:x", "current:default:0", "default: 0"])
def test_pools_of_unknown_devices(mempool: Mempool, word: str) -> None:
    device = word.partition(":")[2]
    assert mempool("--sim", "4", "--no-session", "probe", word) == (
        2,
        "",
        label("4") + f"error: {device!r} names no device [unknown-device]\n  try: {DEVICES}\n",
    )


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("x", "'x'"),
        (" 1", "' 1'"),
        ("1\n", r"'1\n'"),
        ("[1]", "'[1]'"),
        ("\x1b]0;t\x07", r"'\x1b]0;t\x07'"),
        ("\N{ARABIC-INDIC DIGIT ONE}", "'\N{ARABIC-INDIC DIGIT ONE}'"),
        ("1234567890", "'1234567890'"),
        ("1-", "'1-'"),
        ("GPU-xyz", "'GPU-xyz'"),
        ("Peers", "'Peers'"),
    ],
)
def test_unknown_devices(mempool: Mempool, word: str, shown: str) -> None:
    assert mempool("--sim", "4", "--no-session", "grant", "0", "--to", word) == (
        2,
        "",
        label("4") + f"error: {shown} names no device [unknown-device]\n  try: {DEVICES}\n",
    )


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1a",
        "0",
        "host",
        "numa",
        "default",
        "current",
        "all",
        "peers",
        "GPU-x",
        "gpu-1",
        "MIG-",
        "default:0",
        "a b",
        "a,b",
        "[b]x",
        "é",
    ],
)
def test_names_that_are_none(mempool: Mempool, name: str) -> None:
    assert mempool("--sim", "4", "--no-session", "create", "0", "--name", name) == (
        2,
        "",
        label("4") + f"error: {name!r} is no name for a pool [bad-name]\n  try: {NAMES}\n",
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [("a\nb", r"'a\nb'"), ("a\n", r"'a\n'"), ("a\x1b[2J", r"'a\x1b[2J'"), ("a" * 65, repr("a" * 65))],
    ids=["newline", "newline-at-the-end", "escape", "too-long"],
)
def test_names_with_what_a_terminal_would_obey(mempool: Mempool, name: str, shown: str) -> None:
    done = mempool("--sim", "4", "--no-session", "create", "0", "--name", name)
    assert (done.status, done.err.splitlines()[1]) == (2, f"error: {shown} is no name for a pool [bad-name]")


@pytest.mark.parametrize("name", ["a", "_", "A.b-c_9", "a" * 64, "hosts", "defaults", "currently", "pool-7"])
def test_names(mempool: Mempool, name: str) -> None:
    assert mempool("--sim", "4", "--no-session", "create", "0", "-q", "--name", name).out == f"{name}\n"


def test_an_argument_that_is_no_utf_8(mempool_process: MempoolProcess) -> None:
    done = mempool_process("--sim", "4", "probe", b"a\xff".decode("utf-8", "surrogateescape"))
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err


# --- --sim SPEC ---


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        ("nope", "--sim nope: there is no profile 'nope'", SPECS),
        ("", "--sim : there is no profile ''", SPECS),
        (" 4", "--sim  4: there is no profile ' 4'", SPECS),
        ("-1", "--sim -1: there is no profile '-1'", SPECS),
        ("1025", "--sim 1025: a simulated machine has at most 1024 devices", None),
        ("4,x", "--sim 4,x: 'x' is not fault=NAME", SPECS),
        ("4,", "--sim 4,: '' is not fault=NAME", SPECS),
        (
            "4,fault=x",
            "--sim 4,fault=x: there is no fault 'x'",
            "faults: corrupt, drop-writes, fresh-handles, hang, honest-pointer-flags, host-pool-revoke, leak,"
            " lost-after-setaccess, mirror, recycled-handle, refuse",
        ),
        *[
            (f"4,fault=mirror:{pair}", f"--sim 4,fault=mirror:{pair}: '{pair}' is no pair of this machine", PAIR)
            for pair in ("", "2", "2-", "2-4", "9-1", "2-2", "host-host", "2-host", "1-2-3", "-1-2")
        ],
        (
            "4,fault=recycled-handle:0-1",
            "--sim 4,fault=recycled-handle:0-1: the fault recycled-handle is one of the driver, not of a pair",
            None,
        ),
        ("[b]", "--sim [b]: there is no profile '[b]'", SPECS),
        ("\x1b[2J", r"--sim \x1b[2J: there is no profile '\x1b[2J'", SPECS),
    ],
)
def test_specs_that_name_no_machine(mempool: Mempool, spec: str, message: str, hint: str | None) -> None:
    for command in (["probe"], ["create", "0"], ["session", "start"]):
        attempt = f"  try: {hint}\n" if hint else ""
        assert mempool("--sim", spec, *command) == (2, "", f"error: {message} [usage]\n{attempt}")


def test_a_machine_without_devices(mempool: Mempool) -> None:
    done = mempool("--sim", "0", "probe")
    assert (done.status, done.out, done.err.splitlines()[1:3]) == (
        3,
        "",
        ["error: no usable CUDA device [no-device]", "  driver: cuInit = CUDA_ERROR_NO_DEVICE (100)"],
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("device = 3", "device: Expected `array`, got `int`", KEYS),
        ("", "key device is missing", KEYS),
        ('[[device]]\nnam = "x"', "unknown key device[0].nam", KEYS),
        ("[[device]]\n[[devices]]", "unknown key devices", KEYS),
        ('[[device]]\ncount = "2"', "device[0].count: Expected `int`, got `str`", KEYS),
        ("[[device]]\ncount = 0", "device[0].count: Expected `int` >= 1", KEYS),
        ("[[device]]\npools = 1", "device[0].pools: Expected `bool`, got `int`", KEYS),
        (
            '[[device]]\ncompute_mode = "x"',
            "device[0].compute_mode: Invalid enum value 'x'",
            KEYS,
        ),
        ("[[device]]\nmemory = 0", "device[0].memory: Expected `int` >= 1", KEYS),
        ("[[device]]\ncompute_capability = 9", "device[0].compute_capability: Expected `array`, got `int`", KEYS),
        ("driver_version = 11080\n[[device]]", "driver_version: Expected `int` >= 12000", KEYS),
        (
            "[[device]]\ncount = 2\n[p2p]\npairs = [[0, 1, 1]]",
            "p2p.pairs[0]: Expected `array` of length 2, got 3",
            KEYS,
        ),
        ("[[device]]\n[p2p]\npairs = [[0, 1]]", "p2p: (0, 1) is no pair of two of the 1 devices", None),
        ("[[device]]\ncount = 2\n[p2p]\npairs = [[1, 1]]", "p2p: (1, 1) is no pair of two of the 2 devices", None),
        ("[[device]]\ncount = 2\n[p2p]\ngroups = [[0, -1]]", "p2p.groups: there is no device -1 among the 2", None),
        ('[[device]]\nuuid = "x"', "device.uuid: 'x' is no UUID (32 hexadecimal digits)", None),
        ('[[device]]\ncount = 2\nuuid = "x"', "device: uuid and pci_bus_id need count = 1", None),
        (
            '[[device]]\npci_bus_id = "0000:01:00.0"\n[[device]]\npci_bus_id = "0000:01:00.0"',
            "two devices have the same pci_bus_id",
            None,
        ),
        ("[[device]]\ncount = 1000\n[[device]]\ncount = 25", "1025 devices, at most 1024", None),
        ('[[device]]\n[[failure]]\ncall = "cuMemPoolCreate"', "key failure[0].code is missing", KEYS),
        ("[[device]]\n[[failure]]\ncode = 1", "key failure[0].call is missing", KEYS),
        (
            '[[device]]\n[[failure]]\ncall = "cuMemPoolCreate"\ncode = 1\nafter = -1',
            "failure[0].after: Expected `int` >= 0",
            KEYS,
        ),
        ("x = ", "not TOML: Invalid value (at end of document)", None),
        ("[[device]]\nname = \"\x1b\"", "not TOML: Illegal character '\\x1b' (at line 2, column 9)", None),
    ],
)  # fmt: skip
def test_machine_files_that_are_wrong(
    mempool: Mempool, tmp_path: Path, text: str, message: str, hint: str | None
) -> None:
    spec = machine(tmp_path, text)
    attempt = f"  try: {hint}\n" if hint else ""
    assert mempool("--sim", spec, "create", "0") == (2, "", f"error: {spec}: {message} [input-file]\n{attempt}")


def test_a_code_that_the_simulator_does_not_know(mempool: Mempool, tmp_path: Path) -> None:
    spec = machine(tmp_path, FOUR, '[[failure]]\ncall = "cuMemPoolCreate"\ncode = "CUDA_ERROR_NOPE"')
    done = mempool("--sim", spec, "probe")
    error, hint = done.err.splitlines()
    assert (done.status, error) == (
        2,
        f"error: {spec}: failure.code: 'CUDA_ERROR_NOPE' is no code of the simulator [input-file]",
    )
    assert hint.startswith("  try: use a number, or one of CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, ")


@pytest.mark.parametrize("call", ["cuMemPoolSetAcces", "mem_pool_set_access", "cuMemPoolSetAccess_v2", ""])
def test_a_call_that_the_simulator_does_not_know(mempool: Mempool, tmp_path: Path, call: str) -> None:
    spec = machine(tmp_path, FOUR, f'[[failure]]\ncall = "{call}"\ncode = 1')
    done = mempool("--sim", spec, "probe")
    error, hint = done.err.splitlines()
    assert (done.status, error) == (
        2,
        f"error: {spec}: failure.call: {call!r} is no call of the simulator [input-file]",
    )
    assert hint.startswith("  try: use one of cuCtxSetCurrent, ")
    assert "cuMemPoolSetAccess, " in hint


def test_files_that_cannot_be_read(mempool: Mempool, tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'[[device]]\nname = "\xff"\n')
    for file, reason in (
        (missing, "No such file or directory"),
        (tmp_path, "Is a directory"),
        (latin, "it is no UTF-8 text"),
    ):
        assert mempool("--sim", str(file), "probe") == (
            2,
            "",
            f"error: cannot read {file}: {reason} [input-file]\n  try: {SPECS}\n",
        )


# --- options ---


@pytest.mark.parametrize(
    ("arguments", "message", "page"),
    [
        (["--sim", "4", "nope"], "No such command 'nope'.", "mempool"),
        (["--sim"], "Option '--sim' requires an argument.", "mempool"),
        (["--sim", "4", "probe", "--bogus"], "No such option '--bogus'.", "mempool probe"),
        (["--sim", "4", "show", ""], "Invalid value for 'POOL': POOL is empty", "mempool show"),
        (["--sim", "4", "show"], "Missing argument 'POOL'.", "mempool show"),
        (["--sim", "4", "show", "0", "1"], "Got unexpected extra argument (1)", "mempool show"),
        (["--sim", "4", "destroy"], "Missing argument 'POOL...'.", "mempool destroy"),
        (
            ["--sim", "4", "probe", "--timeout", "0"],
            "Invalid value for '--timeout': '0' is no time; write seconds, up to 86400",
            "mempool probe",
        ),
        (
            ["--sim", "4", "probe", "--timeout", "nan"],
            "Invalid value for '--timeout': 'nan' is no time; write seconds, up to 86400",
            "mempool probe",
        ),
        (
            ["--sim", "4", "probe", "--timeout", "1e300"],
            "Invalid value for '--timeout': '1e300' is no time; write seconds, up to 86400",
            "mempool probe",
        ),
        (
            ["--sim", "4", "probe", "--session", "a", "--no-session"],
            "--session and --no-session exclude each other",
            "mempool probe",
        ),
    ],
)
def test_options_that_are_wrong(mempool: Mempool, arguments: list[str], message: str, page: str) -> None:
    assert mempool(*arguments) == (2, "", f"error: {message} [usage]\n  try: see `{page} --help`\n")


def test_nothing_of_all_this_starts_a_session(mempool: Mempool, runtime: Path, tmp_path: Path) -> None:
    for arguments in (
        ["--sim", "4", "create", "nope"],
        ["--sim", "4", "create", "0", "--name", "host"],
        ["--sim", "4", "grant", "nope", "--to", "1"],
        ["--sim", machine(tmp_path, "x"), "create", "0"],
        ["--sim", "4", "set-current", "nope"],
    ):
        assert mempool(*arguments).status in (2, 5)
    assert mempool("--sim", "4", "session", "list").out == "no session runs\n"
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["check"], "[POLICY]"),
        (["check", "--junit"], "--junit"),
        (["diff"], "OLD"),
        (["diff", "old.json"], "[NEW]"),
        (["probe", "--save"], "--save"),
        (["repro", "owner-in-batch", "--report"], "--report"),
        (["repro", "owner-in-batch", "--emit-c"], "--emit-c"),
        (["snapshot", "--output"], "-o' / '--output"),
        (["verify", "--report"], "--report"),
    ],
)
def test_a_file_without_a_name(mempool: Mempool, words: list[str], option: str) -> None:
    """A variable that is not set, say: not the working directory."""
    done = mempool("--sim", "2", *words, "")
    hint = f"  try: see `mempool {words[0]} --help`\n"
    assert done == Done(2, "", f"error: Invalid value for '{option}': the name of the file is empty [usage]\n{hint}")
