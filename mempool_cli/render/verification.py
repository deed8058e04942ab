"""Whether access works: a matrix of verdicts, what contradicts what, and every path when asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.text import Text

from mempool_cli.model import WORST_FIRST, NegativeResult, PairResult, PathResult, UngrantedCopy, VerifyReport
from mempool_cli.render.layout import Part, grid, line
from mempool_cli.render.matrix import device_legend
from mempool_cli.render.words import size
from mempool_cli.wording import ranges

_LEGEND = {
    "ok": "every path that was tried carries its data",
    "mirror": "the writer sees its own data, the other side does not",
    "corrupt": "other bytes arrived",
    "dropped": "nothing arrived",
    "faulted": "work failed while it ran, although access is granted",
    "hang": "work did not end",
    "refused": "the driver refused, although the device is capable",
    "leaked": "a kernel got through without access",
    "error": "something else failed",
    "inconclusive": "not all is proved",
    "skipped": "not tried",
    "self": "the device's own memory, tried only when it is named on both sides",
    ".": "not tried, or not known yet",
}
_STYLES = {"ok": "green", "skipped": "", "self": "", ".": "", "inconclusive": "bold magenta"}
_LOOK = {
    "mirror": "a virtual machine, in which each card may see a private window of the other; the IOMMU and PCIe ACS",
    "corrupt": "the link (`nvidia-smi nvlink -e`, PCIe errors in the kernel log), the IOMMU and PCIe ACS; where copies"
    " arrive as zeros a driver bug (`mempool repro peer-write-lost`)",
    "dropped": "the IOMMU and PCIe ACS, a virtual machine, a driver bug (`mempool repro peer-write-lost`)",
    "faulted": "Xid lines in the kernel log",
    "hang": "the IOMMU and PCIe ACS, Xid lines in the kernel log; `--owner` and `--accessor` try one pair alone",
    "refused": "nvidia-fabricmanager, on NVSwitch machines",
    "leaked": "a driver bug (`mempool repro recycled-handle`)",
}
_LOOK_AT_HOST = {
    "mirror": "a virtual machine, the IOMMU",
    "leaked": "a driver bug (`mempool repro host-pool-revoke`)",
}
_KINDS = {"zeros": "zeros", "sentinel": "what was there before", "other": "something else"}
_HEAD = ("owner", "accessor", "order", "path", "verdict", "size", "bandwidth", "why")


def report(result: VerifyReport, width: int | None, *, verbose: bool) -> list[Text]:
    """The matrix, what of it is bad, what was skipped, and with `verbose` a line a path."""
    lines = _matrix(result, width)
    for part in _findings(result.pairs):
        lines += [line(), *part]
    skips = _skips(result.pairs)
    lines += [line(), *skips] if skips else []
    if verbose:
        rows = [row for pair in result.pairs for row in _rows(pair)]
        lines += [line(), *_table(rows, width)] if rows else []
    return [*lines, line(), *_enforcement(result)]


# --- the matrix ---


def _matrix(result: VerifyReport, width: int | None) -> list[Text]:
    if not result.pairs:
        return [line("no pair was finished" if result.planned else "no pair was tried")]
    found = {(_owner(pair), pair.accessor): pair.verdict for pair in result.pairs}
    owners = list(dict.fromkeys(owner for owner, _ in found))
    accessors = sorted({accessor for _, accessor in found})
    cells = [[_cell(found, owner, accessor) for accessor in accessors] for owner in owners]
    rows: list[list[Part]] = [
        [owner, *((cell, _STYLES.get(cell, "bold red")) for cell in row)]
        for owner, row in zip(owners, cells, strict=True)
    ]
    seen = {cell for row in cells for cell in row}
    legend = [((word, _STYLES.get(word, "bold red")), words) for word, words in _LEGEND.items() if word in seen]
    sizes = ", ".join(size(each) for each in result.sizes)
    tries = "once" if result.repeat == 1 else f"{result.repeat} times"
    devices = [device for device in result.devices if device.ordinal in accessors or str(device.ordinal) in owners]
    return [
        line(f"memory of a pool on the owner (row), used by the accessor (column): {sizes}, {tries} each"),
        *grid(["owner", *map(str, accessors)], rows, width=width),
        line(),
        *grid(None, legend),
        line(),
        *device_legend(devices, width),
    ]


def _owner(pair: PairResult) -> str:
    return pair.location


def _cell(found: Mapping[tuple[str, int], str], owner: str, accessor: int) -> str:
    return found.get((owner, accessor), "self" if owner == str(accessor) else ".")


# --- what is bad ---


def _findings(pairs: Iterable[PairResult]) -> Iterator[list[Text]]:
    """The worst first; pairs of which there is the same to say together."""
    alike: dict[tuple[str, ...], list[PairResult]] = {}
    for pair in sorted(pairs, key=lambda pair: WORST_FIRST.index(pair.verdict)):
        if pair.verdict not in ("ok", "skipped"):
            alike.setdefault((pair.verdict, *_said(pair)), []).append(pair)
    for (verdict, *said), found in alike.items():
        names = [found[0].name] if len(found) == 1 else [f"{len(found)} pairs", *_places(found)]
        head = line(f"{names[0]}: ", (verdict, _STYLES.get(verdict, "bold red")))
        yield [head, *(line(f"  {text}") for text in (*names[1:], *said))]


def _said(pair: PairResult) -> list[str]:
    """The three layers beside each other, the paths that are not right, what a kernel did, and where to look."""
    data, enforcement = _unlike(pair)
    lines = [f"{_contradiction(pair)}:", *data] if data and _contradiction(pair) else data
    if enforcement:
        lines += ["without access a kernel has to fault, and:", *enforcement]
    told: set[str] = {path.verdict for path in pair.paths} | {kernel.verdict for kernel in pair.negatives}
    lines += [] if pair.verdict in told else [pair.why]
    if pair.remains:
        lines.append(f"process {pair.remains} remains: SIGKILL does not end it, and its devices were left out")
    look = _LOOK_AT_HOST.get(pair.verdict) if pair.owner is None else None
    look = look or _LOOK.get(pair.verdict)
    return [*lines, f"possible: {look}"] if look else lines


def _places(pairs: Iterable[PairResult]) -> list[str]:
    """A line an owner: `owner 0, accessor 1-7`."""
    owners: dict[str, list[int]] = {}
    for pair in pairs:
        owners.setdefault(_owner(pair), []).append(pair.accessor)
    return [f"owner {owner}, accessor {ranges(accessors)}" for owner, accessors in owners.items()]


def _contradiction(pair: PairResult) -> str | None:
    """What does not go together; None where no path is bad."""
    bad = {path.verdict for path in pair.paths} - {"ok", "skipped", "error", "inconclusive"}
    if not bad:
        return None
    permission = {"rw": "RW", "r": "R", None: "not read"}.get(pair.access, pair.access)
    said = f"the driver says: capable {'yes' if pair.capable else 'no'}, access {permission}"
    return f"{said}; the data says otherwise" if bad & {"mirror", "corrupt", "dropped"} else f"{said}; and yet"


def _unlike(pair: PairResult) -> tuple[list[str], list[str]]:
    """A line for all paths that came to the same in both orders, and for kernels without access."""
    data: dict[str, list[str]] = {}
    for path in pair.paths:
        if path.verdict not in ("ok", "skipped"):
            places = data.setdefault(f"{path.verdict}: {path.why}{_where(path)}{_answer(path)}", [])
            places.append(f"{path.path} ({path.order})")
    kernels: dict[str, list[str]] = {}
    for each in pair.negatives:
        if each.verdict not in ("blocked", "dropped"):
            text = f"{each.verdict}: {each.why}{_answer(each)}"
            kernels.setdefault(text, []).append(f"kernel {each.access} ({each.variant})")
    first, second = (
        [f"{', '.join(_merged(places))}: {text}" for text, places in groups.items()] for groups in (data, kernels)
    )
    return first, second


def _merged(places: Sequence[str]) -> list[str]:
    """`kernel-write` for a path of which both orders are there."""
    names = [place.partition(" (")[0] for place in places]
    twice = {name for name in names if names.count(name) > 1}
    merged = (name if name in twice else place for name, place in zip(names, places, strict=True))
    return list(dict.fromkeys(merged))


def _where(path: PathResult) -> str:
    if path.damage is None or path.size is None:
        return ""
    wrong = path.damage.wrong
    words = f"{wrong} of {path.size // 8} longs" if path.size > 8 else "1 long"
    kind = _KINDS[path.damage.kind]
    return f"; at {size(path.size)} {words} wrong, the first at offset {path.damage.first}: {kind}"


def _answer(result: PathResult | NegativeResult | UngrantedCopy) -> str:
    return f" [{result.driver}]" if result.driver else ""


# --- what was not tried ---


def _skips(pairs: Iterable[PairResult]) -> list[Text]:
    """By reason: a line an owner."""
    reasons: dict[str, list[PairResult]] = {}
    for pair in pairs:
        if pair.verdict == "skipped":
            reasons.setdefault(pair.why, []).append(pair)
    lines: list[Text] = []
    for why, found in reasons.items():
        lines += [line(f"skipped: {why}"), *(line(f"  {place}") for place in _places(found))]
    return lines


def _enforcement(result: VerifyReport) -> list[Text]:
    """How many pairs were tried without access, of those that could have been: the owner itself cannot lose it."""
    could = [pair for pair in result.pairs if pair.paths and pair.owner != pair.accessor]
    tried = [pair for pair in could if pair.negatives]
    tight = [pair for pair in tried if pair.kept_out]
    if not result.faults_allowed:
        return [line("is access enforced: not tested; --allow-faults tries it")]
    if not could:
        return [line("is access enforced: no pair on which it could be tested")]
    lines = [line(f"is access enforced: kernels without it were kept out on {len(tight)} of {len(could)} pairs")]
    return lines + [line(f"  not tested: {pair.name}: {pair.verdict}") for pair in could if not pair.negatives]


# --- every path ---


def _table(rows: Sequence[tuple[Part, ...]], width: int | None) -> list[Text]:
    """The rows; where there is no room for the reasons beside them, each below its row."""
    table = grid(_HEAD, rows)
    if width is None or max(text.cell_len for text in table) <= width:
        return table
    head, *lines = grid(_HEAD[:-1], [row[:-1] for row in rows])
    reasons = [[] if row[-1] == "-" else [line("  ", row[-1])] for row in rows]
    return [head, *(part for row, reason in zip(lines, reasons, strict=True) for part in (row, *reason))]


def _rows(pair: PairResult) -> list[tuple[Part, ...]]:
    owner, accessor = _owner(pair), str(pair.accessor)
    rows: list[tuple[Part, ...]] = []
    for path in pair.paths:
        verdict = (path.verdict, _STYLES.get(path.verdict, "bold red"))
        why = "-" if path.verdict == "ok" else f"{path.why}{_where(path)}{_answer(path)}"
        rows.append((owner, accessor, path.order, path.path, verdict, size(path.size), _rate(path.bandwidth), why))
    for each in pair.negatives:
        good = each.verdict in ("blocked", "dropped")
        came_to = (each.verdict, "green" if good else "bold red")
        why = f"{each.why}{_answer(each)}"
        rows.append((owner, accessor, each.variant, f"kernel-{each.access}", came_to, "-", "-", why))
    for copy in pair.ungranted_copies:
        outcome = copy.why or ("arrived" if copy.arrived else f"did not arrive{_answer(copy)}")
        rows.append((owner, accessor, "never-granted", copy.path, "recorded", "-", "-", outcome))
    return rows


def _rate(bandwidth: float | None) -> str:
    return "-" if bandwidth is None else f"{bandwidth / 1e9:.1f} GB/s"
