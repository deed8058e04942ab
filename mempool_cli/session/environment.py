"""Device numbers mean the same cards only under the same CUDA variables; UUIDs always do."""

from __future__ import annotations

import os
import re

import msgspec

from mempool_cli.errors import MempoolError
from mempool_cli.model import Answer, Notice
from mempool_cli.requests import AnyRequest

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"

# 0, 1-3, 1,2, default:0, current:0; not a UUID, a bus id (it has a colon elsewhere), numa:0, or a name.
_NUMBERED = r"(?:(?:default|current):)?[0-9][0-9,-]*"


class Environment(msgspec.Struct, frozen=True):
    """The variables that decide which card is device 0. None: not set, which differs from empty."""

    visible: str | None
    order: str | None

    @staticmethod
    def current() -> Environment:
        """As this process has them."""
        return Environment(os.environ.get(VISIBLE), os.environ.get(ORDER))


def numbered(request: AnyRequest) -> list[str]:
    """The words of a request that name a device by its number."""
    words: list[str] = []
    for field in ("pool", "pools", "location", "to", "devices"):
        value = getattr(request, field, ())
        words += [value] if isinstance(value, str) else value
    return [word for word in words if re.fullmatch(_NUMBERED, word)]


def check(request: AnyRequest, client: Environment, host: Environment, who: str) -> None:
    """MempoolError `other-environment` when a number would mean one card to the client and another to the host."""
    words = numbered(request)
    if client == host or not words:
        return
    raise MempoolError(
        "other-environment",
        f"{', '.join(words)}: device numbers may mean other cards: {_differing(client, host, who)}",
        hint="name devices by UUID (`mempool devices`), or use the same variables as the session",
    )


def warned(answer: Answer, client: Environment, host: Environment, who: str) -> Answer:
    """The answer, with a warning when its numbers would mean other cards to the client."""
    if client == host or answer.result is None:
        return answer
    message = f"device numbers are those of {who}: {_differing(client, host, who)}"
    warnings = (*answer.result.warnings, Notice("other-environment", message))
    return msgspec.structs.replace(answer, result=msgspec.structs.replace(answer.result, warnings=warnings))


def _differing(client: Environment, host: Environment, who: str) -> str:
    return "; ".join(
        f"{name} is {_shown(ours)} in {who}, and {_shown(theirs)} here"
        for name, ours, theirs in ((VISIBLE, host.visible, client.visible), (ORDER, host.order, client.order))
        if ours != theirs
    )


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)
