"""What a host that ended unasked leaves for the next command on its name: when, why, and what went with it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mempool_cli.session.directory import Place


class Farewell(msgspec.Struct, frozen=True, kw_only=True):
    """`when` is in UTC; `why`: `after 30 idle minutes`, `by SIGTERM`; `pools`: the names of those that went."""

    when: datetime
    why: str
    pools: tuple[str, ...]

    @property
    def words(self) -> str:
        """What follows the host's name: `ended 2026-12-01 05:35 UTC by SIGTERM; gone with it: all grants`."""
        gone = f"pools {', '.join(self.pools)}, and all grants" if self.pools else "all grants"
        return f"ended {self.when:%Y-%m-%d %H:%M} UTC {self.why}; gone with it: {gone}"


def leave(place: Place, farewell: Farewell) -> None:
    """Leaves it at `place`, whose lock the caller holds; OSError."""
    place.write(place.ended, msgspec.json.encode(farewell))


def take(place: Place) -> Farewell | None:
    """What was left at `place`, and removes it, so that it is told once; None when there is nothing to tell."""
    try:
        data = place.ended.read_bytes()
        place.ended.unlink()
        return msgspec.json.decode(data, type=Farewell)
    except (FileNotFoundError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
