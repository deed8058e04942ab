"""What was changed: grants and revokes, new pools, current pools, destroyed pools."""

from __future__ import annotations

from rich.text import Text

from mempool_cli.model import AccessChange, CurrentPool, PoolCreated, PoolDestroyed, PoolsDestroyed
from mempool_cli.render.cells import sentence
from mempool_cli.render.layout import line
from mempool_cli.render.words import calls, max_size, threshold
from mempool_cli.wording import device_list


def access_change(result: AccessChange) -> list[Text]:
    """What a grant or revoke did or would do, what it left alone, and the access that the driver reports now."""
    lines = [line(f"pool {result.pool.name}: {_verdict(result)} ({_effort(result)})")]
    if result.unchanged:
        lines.append(line(f"already so: {device_list(result.unchanged)}"))
    if result.owner_skipped:
        owner = "" if result.pool.owner is None else f" device {result.pool.owner}"
        lines.append(line(f"left out: the owner{owner}, which always has access"))
    if result.cells:
        lines.append(line(f"access now: {sentence(result.cells)}"))
    return lines


def created(result: PoolCreated) -> list[Text]:
    """The new pool, what it inherited, and who may access it."""
    pool = result.pool
    place = pool.location if pool.owner is None else f"device {pool.owner}"
    limits = f"max size: {max_size(result.max_size)}, release threshold: {threshold(result.release_threshold)}"
    lines = [line(f"created pool {pool.name} on {place} ({limits})")]
    if result.inherited:
        lines.append(line(f"cleared access that nobody asked for: {device_list(result.inherited)}"))
    if result.granted:
        lines.append(line(f"granted to {device_list(result.granted)} ({calls(result.set_access_calls)})"))
    if result.cells:
        lines.append(line(f"access now: {sentence(result.cells)}"))
    return lines


def current(result: CurrentPool) -> list[Text]:
    """Where a device allocates from."""
    if result.pool.name == result.previous.name:
        return [line(f"device {result.device} allocates from pool {result.pool.name}, as before")]
    return [
        line(f"device {result.device} now allocates from pool {result.pool.name}, before from {result.previous.name}")
    ]


def destroyed(result: PoolsDestroyed) -> list[Text]:
    """A line a pool, and what could outlive it."""
    return [text for entry in result.destroyed for text in _destroyed(entry)] or [line("no pools destroyed")]


def _destroyed(entry: PoolDestroyed) -> list[Text]:
    cleared = f" (access of {device_list(entry.cleared)} cleared first)" if entry.cleared else ""
    lines = [line(f"destroyed pool {entry.pool.name}{cleared}")]
    if entry.not_cleared:
        lines.append(line(f"  access would not clear: {device_list(entry.not_cleared)}"))
    if entry.unknown:
        lines.append(line(f"  access not known: {device_list(entry.unknown)}"))
    if entry.left_granted:
        lines.append(line(f"  access left as it was: {device_list(entry.left_granted)}"))
    return lines


def _verdict(result: AccessChange) -> str:
    parts = []
    if result.granted:
        parts.append(f"granted to {device_list(result.granted)}")
    if result.revoked:
        parts.append(f"revoked from {device_list(result.revoked)}")
    if parts:
        return ("access would be " if result.dry_run else "access ") + ", ".join(parts)
    if result.unknown:
        return "what changed is not known"
    return "nothing changed" if result.set_access_calls else "nothing to do"


def _effort(result: AccessChange) -> str:
    return "dry run, no call made" if result.dry_run else calls(result.set_access_calls)
