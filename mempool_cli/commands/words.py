"""Options that take devices eat every following word: `grant 0 --to 1 2`. Also `--to 1,2`, `--to 1-3`, `--to=1 2`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_LARGEST_RANGE = 4096
_OPEN = "mempool.open-option"


class DeviceWords(click.Option):
    """An option whose value is one or more devices; `Eater` gathers the words."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs |= {"multiple": True, "metavar": "DEV...", "callback": split_devices}
        super().__init__(*args, **kwargs)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Devices of a running host, for the first word; those that follow are completed by the command."""
        from mempool_cli.commands.completion import complete_devices

        return complete_devices(ctx, incomplete)


def split_devices(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Single DEV words: commas and ranges of ordinals taken apart. Which devices they are, only a driver knows."""
    return tuple(word for value in values for item in value.split(",") for word in _expand(item, value, param, ctx))


def _expand(item: str, value: str, param: click.Parameter, ctx: click.Context) -> list[str]:
    if not item.strip():
        raise click.BadParameter(f"{value!r} has an empty place where a device should be", ctx, param)
    match = _RANGE.fullmatch(item)
    if not match:
        return [item]
    first, last = int(match[1]), int(match[2])
    if last < first or last - first >= _LARGEST_RANGE:
        raise click.BadParameter(f"{item!r} is no range of devices", ctx, param)
    return [str(ordinal) for ordinal in range(first, last + 1)]


class Eater(click.Command):
    """A command whose DeviceWords options take all words up to the next option.

    click's own parser gives an option a fixed number of words, so the words are rewritten into repeated
    options before it sees them.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, after the rewriting; a missing argument says that it comes before the option."""
        rewritten, ate = self._rewrite(ctx, args)
        try:
            return super().parse_args(ctx, rewritten)
        except click.MissingParameter as error:
            if ate and isinstance(error.param, click.Argument):
                missing = error.param.make_metavar(ctx)
                raise click.UsageError(
                    f"missing {missing}: it comes before {ate}, which takes every word after it"
                    f" ({ctx.command_path} {missing} {ate} DEV...)",
                    ctx,
                ) from error
            raise

    def _rewrite(self, ctx: click.Context, args: Sequence[str]) -> tuple[list[str], str | None]:
        """The words with each eaten one behind an option of its own, and the option that ate any."""
        eaters = {name for param in self.params if isinstance(param, DeviceWords) for name in param.opts}
        valued = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag and not param.count
            for name in param.opts
        }
        out: list[str] = []
        ate: str | None = None
        words = list(args)
        while words:
            word = words.pop(0)
            option, equals, value = word.partition("=")
            if word == "--":
                return [*out, word, *words], ate
            if option in eaters:
                ate = option
                eaten = [value] if equals else []
                while words and not words[0].startswith("-"):
                    eaten.append(words.pop(0))
                self._check_eaten(ctx, option, eaten, words[:1])
                out += [part for device in eaten for part in (option, device)]
            else:
                out.append(word)
                if word in valued and words:
                    out.append(words.pop(0))
        return out, ate

    @staticmethod
    def _check_eaten(ctx: click.Context, option: str, eaten: list[str], following: list[str]) -> None:
        if ctx.resilient_parsing:
            if not following:
                ctx.meta[_OPEN] = option
            return
        if not eaten or not all(eaten):
            before = f" before {following[0]!r}" if following else ""
            what = "an empty word" if eaten else f"nothing{before}"
            raise click.UsageError(f"{option} needs at least one device and got {what}", ctx)


def open_option(ctx: click.Context) -> str | None:
    """While a shell completes: the option that would eat the next word, if one is open."""
    found: str | None = ctx.meta.get(_OPEN)
    return found
