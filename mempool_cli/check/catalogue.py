"""Which checks there are, and which of them a user wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mempool_cli.errors import MempoolError
from mempool_cli.model import CheckList, CheckSummary


@dataclass(frozen=True)
class Check:
    """A check by its id. `of_pairs`: it needs devices that can use each other's memory; `standard`: run unasked."""

    id: str
    title: str
    of_pairs: bool = False
    standard: bool = True


CHECKS = (
    Check("driver", "the driver loads and starts, and is new enough"),
    Check("devices", "there are the devices that should be there"),
    Check("pools", "each device has memory pools"),
    Check("capability", "each device can reach each other one, as two calls of the driver say", of_pairs=True),
    Check("fresh", "default pools start without access for others"),
    Check("owner", "the owner of a pool cannot lose access"),
    Check("grant", "access is granted, reads back, is revoked and reads back", of_pairs=True),
    Check("batch", "a call with one bad entry changes nothing", of_pairs=True),
    Check("recycled", "a recycled pool handle inherits no access (nvbug 5698116)", of_pairs=True),
    Check("data", "data gets through (mempool verify)", of_pairs=True, standard=False),
)


def list_checks() -> CheckList:
    """All of them."""
    return CheckList(
        checks=tuple(CheckSummary(id=check.id, title=check.title, of_pairs=check.of_pairs) for check in CHECKS)
    )


def chosen(
    select: Sequence[str], skip: Sequence[str], *, data: bool, devices: bool = False, source: str = ""
) -> tuple[Check, ...]:
    """Those whose id fits one of `select` (empty: the standard ones) and none of `skip`, in their order.

    MempoolError `usage` or, from the file `source`, `input-file` for a pattern that fits no id, and where `data` or
    `devices`, the wish for that check, is left out.
    """
    for key, patterns in (("select", select), ("skip", skip)):
        for pattern in patterns:
            if not any(fits(check.id, [pattern]) for check in CHECKS):
                code, where = ("input-file", f"{source}: checks.{key}") if source else ("usage", f"--{key}")
                known = ", ".join(check.id for check in CHECKS)
                raise MempoolError(code, f"{where}: no check is called {pattern!r}", hint=f"the checks are {known}")
    if data and fits("data", skip):
        if source:
            raise MempoolError("input-file", f"{source}: checks.skip: it leaves out data, which checks.data wants")
        raise MempoolError("usage", "--data wants what --skip, or checks.skip of the policy, leaves out")
    wanted = [check for check in CHECKS if _asked(check, select, check.standard or data) and not fits(check.id, skip)]
    if devices and not any(check.id == "devices" for check in wanted):
        message = "--require-devices wants the check devices, which --select, --skip or the policy leaves out"
        raise MempoolError("usage", message)
    if not wanted:
        raise MempoolError("usage", "no check is left to run", hint="`mempool check --list`")
    return tuple(wanted)


def fits(check: str, patterns: Sequence[str]) -> bool:
    """Whether the id of a check is one of these, or fits one of these globs."""
    return any(fnmatchcase(check, pattern) for pattern in patterns)


def _asked(check: Check, select: Sequence[str], unasked: bool) -> bool:
    if not select:
        return unasked
    return fits(check.id, select) or (check.id == "data" and unasked)
