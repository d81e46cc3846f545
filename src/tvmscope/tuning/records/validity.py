"""Whether a record's parameters mean today what they meant when they were measured."""

from __future__ import annotations

from typing import Any

from tvmscope.compiler.schedules import brought_by, rule_named
from tvmscope.core.tuning import Trial


def outdated(trial: Trial) -> str | None:
    """Why a record says nothing about today's kernels; None where it does.

    A record belongs to one schedule rule; a change of that rule voids it. A trace needs none.
    """
    if trial.rule is None or trial.candidate.trace is not None:
        return None
    rule = rule_named(trial.rule)
    tuned = f"tuned with the schedule rule {trial.rule}"
    if rule is None:
        origin = f" of {trial.rule_from}" if trial.rule_from else ""
        return f"{tuned}{origin}, which is not here"
    if trial.rule_version != rule.version:
        return f"{tuned} in version {trial.rule_version}, not {rule.version}"
    if trial.rule_from != (here := brought_by(trial.rule)):
        return f"{tuned} of {trial.rule_from or 'tvmscope'}, not of {here or 'tvmscope'}"
    return None


def identity(rule: str | None) -> dict[str, Any]:
    """The fields by which a new record names its rule as it is today."""
    found = None if rule is None else rule_named(rule)
    if found is None:
        return {}
    return {
        "rule": found.name,
        "rule_version": found.version,
        "rule_from": brought_by(found.name),
    }
