"""The command line: one file a subcommand, loaded when it is asked for."""

from __future__ import annotations

import importlib

import click

from mempool_cli.commands.common import examples
from mempool_cli.commands.settings import global_options

_COMMANDS = {
    "devices": ("devices:devices", "List the devices, their pool support and their peers."),
    "create": ("create:create", "Create a pool on a device, the host or a NUMA node."),
    "list": ("list_pools:list_pools", "List the pools: default, current and created ones."),
    "show": ("show:show", "Show one pool: its attributes and who may access it."),
    "grant": ("grant:grant", "Give devices access to a pool, in one cuMemPoolSetAccess."),
    "revoke": ("revoke:revoke", "Take access to a pool away from devices."),
    "probe": ("probe:probe", "Ask the driver who may access which pool."),
    "set-current": ("set_current:set_current", "Make a pool the one that its device allocates from."),
    "destroy": ("destroy:destroy", "Destroy pools, after taking access away from their peers."),
    "session": ("session:session", "Start, stop and look at sessions, which hold the pools."),
    "exec": ("exec_program:exec_program", "Run a program whose pools mempool can see and set."),
    "verify": ("verify:verify", "Check that access really works, byte by byte."),
    "check": ("check:check", "Check that this machine is as it should be."),
    "repro": ("repro:repro", "Prove that the driver has a known bug, or rule it out."),
    "doctor": ("doctor:doctor", "Find out why this machine cannot, or that it can."),
    "snapshot": ("snapshot:snapshot", "Print the machine as one JSON document."),
    "diff": ("diff:diff", "Say what changed from one snapshot to another."),
}
"""Where each is, and the first line of its help: to import all for one page takes as long as all the rest."""


class Commands(click.Group):
    """The subcommands in the order of the work; none is imported before it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the help page."""
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A line a command, from what stands here."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; the error for an unknown command suggests a known one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx) from error

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(importlib.import_module(f"mempool_cli.commands.{module}"), attribute)
        return command


cli = Commands(
    "mempool",
    help="CUDA memory pools: create them, grant and revoke peer access, and probe the access the driver really gives.",
    params=[*global_options()],
    epilog=examples(
        "mempool grant 0 --to 1 2   # devices 1, 2 may use device 0's default pool",
        "mempool probe --matrix     # who may access what, as the driver says",
        "mempool --sim 4 devices    # the same without GPUs",
    )
    + "\n\nThe options can also be set by MEMPOOL_SIM, MEMPOOL_SESSION, MEMPOOL_NO_SESSION, MEMPOOL_FORMAT,"
    " MEMPOOL_COLOR, MEMPOOL_TRACE, MEMPOOL_TIMEOUT and MEMPOOL_WAIT. Sessions and programs keep their files in"
    " MEMPOOL_RUNTIME_DIR, else in /tmp/mempool-UID.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
