"""From what trials counted to a verdict."""

from __future__ import annotations

from collections.abc import Mapping

from mempool_cli.repro.language import Bug, Rule, Verdict

_WORST_FIRST = ("affected", "present", "inconclusive", "not-affected", "absent")


def judge(bug: Bug, counters: Mapping[str, int]) -> tuple[Verdict, str]:
    """The verdict of the first rule that applies, and why."""
    rule = next(rule for rule in bug.rules if _applies(rule, counters))
    return rule.verdict, rule.why.format_map(counters)


def severity(verdict: str) -> int:
    """Of several verdicts the one with the lowest counts."""
    return _WORST_FIRST.index(verdict)


def _applies(rule: Rule, counters: Mapping[str, int]) -> bool:
    if rule.counter is None:
        return True
    count = counters[rule.counter]
    if rule.at_least is not None and count < rule.at_least:
        return False
    return rule.below is None or count < rule.below
