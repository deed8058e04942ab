"""Completion of pools and devices: asks a running host, never starts one, and is silent when there is none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, shell_complete, split_arg_string

from mempool_cli.commands.settings import DEFAULT_SESSION, settings
from mempool_cli.commands.words import open_option

if TYPE_CHECKING:
    from mempool_cli.model import AnyResult
    from mempool_cli.requests import AnyRequest

_PATIENCE_SECONDS = 1.0
_BASH = """\
%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} colon= IFS=$'\\n'
    local word=${line##*[[:space:]]}
    [[ $COMP_WORDBREAKS == *:* ]] && colon=${word%%"${word##*:}"}
    COMPREPLY=($(COMP_LINE=$line %(complete_var)s=bash_complete "$1"))
    COMPREPLY=("${COMPREPLY[@]#"$colon"}")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class Bash(BashComplete):
    """Completes whole words of the line where click's class gets pieces: bash breaks `default:0` at the colon."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one to complete, and what there is of that one."""
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """A line of the answer; bash wants no more than the word."""
        return str(item.value)


def answer(cli: click.Command, wanted: str) -> int:
    """Prints what a shell asks for by `_MEMPOOL_COMPLETE`, its own part or words; the exit status, 1 for no shell."""
    add_completion_class(Bash)
    try:
        return shell_complete(cli, {}, "mempool", "_MEMPOOL_COMPLETE", wanted)
    except (KeyError, ValueError):  # not called as a shell calls it
        return 1


def complete_pools(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The pools that the running host can name."""
    from mempool_cli.model import PoolList
    from mempool_cli.requests import List

    found = _ask(ctx, List())
    if not isinstance(found, PoolList):
        return []
    return [
        CompletionItem(summary.pool.name, help=", ".join(summary.pool.roles))
        for summary in found.pools
        if summary.pool.name.startswith(incomplete)
    ]


def complete_devices(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Ordinals, UUIDs, `all` and `peers`, also after a comma."""
    from mempool_cli.model import DeviceList
    from mempool_cli.requests import Devices

    found = _ask(ctx, Devices())
    if not isinstance(found, DeviceList):
        return []
    words = [(str(device.ordinal), device.name) for device in found.devices]
    words += [("all", "every other device"), ("peers", "every device that can")]
    words += [(device.uuid, device.name) for device in found.devices]
    done, comma, last = incomplete.rpartition(",")
    return [CompletionItem(done + comma + word, help=text) for word, text in words if word.startswith(last)]


def complete_locations(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Devices, `host` and the first NUMA node; devices alone where an option is eating words."""
    from mempool_cli.devices import EVERY

    found = complete_devices(ctx, incomplete)
    if open_option(ctx):
        return found
    places = [CompletionItem("host", help="host memory"), CompletionItem("numa:0", help="host memory of a NUMA node")]
    return [item for item in (*found, *places) if item.value.startswith(incomplete) and item.value not in EVERY]


def complete_machines(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The simulated machines of the package, and files once the word looks like a path."""
    from mempool_cli.driver.sim.profile import profile_names

    if "/" in incomplete:
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(name) for name in profile_names() if name.startswith(incomplete)]


def complete_sessions(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The sessions that run in the name space of this command line."""
    from mempool_cli.errors import MempoolError
    from mempool_cli.session import lifecycle

    try:
        found = lifecycle.list_sessions(simulated=settings(ctx).sim is not None).sessions
    except (MempoolError, click.UsageError, OSError):
        return []
    return [CompletionItem(each.name) for each in found if each.name.startswith(incomplete)]


def _ask(ctx: click.Context, request: AnyRequest) -> AnyResult | None:
    """What the running host answers; None whatever goes wrong: a completion must not print."""
    from mempool_cli.driver import driver_source
    from mempool_cli.errors import MempoolError
    from mempool_cli.session import lifecycle

    try:
        chosen = settings(ctx)
        name = chosen.session or DEFAULT_SESSION
        runner = lifecycle.find(name, driver_source(chosen.sim), timeout=_PATIENCE_SECONDS, report_death=False)
        if runner is None:
            return None
        return runner.run(request, lambda event: None).result
    except (MempoolError, click.UsageError, OSError):
        return None
