"""Checks whether a record's parameters still have the meaning they had when they were measured."""

from __future__ import annotations

from typing import Any

from tvmscope.compiler.schedules import brought_by, rule_named
from tvmscope.core.tuning import Trial
from tvmscope.messages import Text, msg

OWN = "tvmscope"
"""The origin of built-in rules."""


def outdated(trial: Trial) -> Text | None:
    """Say why a record does not apply to today's kernels; None if it does.

    A record belongs to one schedule rule; a change of that rule voids it. A trace needs no rule.
    """
    if trial.rule is None or trial.candidate.trace is not None:
        return None
    rule = rule_named(trial.rule)
    if rule is None:
        return msg(
            "tuned with the schedule rule {rule} of {origin}, which is not installed",
            rule=trial.rule,
            origin=trial.rule_from or OWN,
        )
    if trial.rule_version != rule.version:
        return msg(
            "tuned with the schedule rule {rule} in version {version}, not {here}",
            rule=trial.rule,
            version=trial.rule_version or 0,
            here=rule.version,
        )
    if trial.rule_from != (here := brought_by(trial.rule)):
        return msg(
            "tuned with the schedule rule {rule} of {origin}, not of {here}",
            rule=trial.rule,
            origin=trial.rule_from or OWN,
            here=here or OWN,
        )
    return None


def identity(rule: str | None) -> dict[str, Any]:
    """Return the fields by which a new record names the current version of its rule."""
    found = None if rule is None else rule_named(rule)
    if found is None:
        return {}
    return {
        "rule": found.name,
        "rule_version": found.version,
        "rule_from": brought_by(found.name),
    }
