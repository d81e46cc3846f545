"""Schedule rules: `cpu/` and `cuda/` define them; `apply.py` offers them each kernel."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tvmscope.compiler.manifest.anchors import Ordered, placed
from tvmscope.compiler.manifest.rule import DEVICES, ScheduleRule
from tvmscope.compiler.schedules import cpu, cuda
from tvmscope.plugins import Found, Plugin, PluginFailure, outside, remember, taken


def ordered(device: str) -> Ordered[ScheduleRule]:
    """Return the rules of a device, with those of other packages inserted at their anchors."""
    mine, others = (cpu.RULES, cuda.RULES) if device == "cpu" else (cuda.RULES, cpu.RULES)
    return _ordered(device, mine, others, outside("schedule rule", ScheduleRule))


@cache  # every tuning record looks up its rule
def _ordered(
    device: str,
    mine: tuple[ScheduleRule, ...],
    others: tuple[ScheduleRule, ...],
    found: Found[ScheduleRule],
) -> Ordered[ScheduleRule]:
    elsewhere = {rule.name for rule in others}
    fitting, failures = [], list(found.failures)
    for each in found.brought:
        if each.manifest.name in elsewhere:  # a record names a rule without its device
            failures.append(taken(each.plugin, each.manifest.name, None))
        elif device in each.manifest.devices:
            fitting.append(each)
    whole = placed(mine, fitting)
    return replace(whole, failures=(*remember(failures), *whole.failures))


def rules(device: str) -> tuple[ScheduleRule, ...]:
    """Return the rules of a device, in the order in which they are offered a kernel."""
    return ordered(device).manifests


def all_rules() -> tuple[ScheduleRule, ...]:
    """Return the rules of every device."""
    found = {rule.name: rule for device in DEVICES for rule in rules(device)}
    return tuple(found.values())


def rule_named(name: str) -> ScheduleRule | None:
    """Return the rule with this name, of any device."""
    return next((rule for rule in all_rules() if rule.name == name), None)


def plugins() -> dict[str, Plugin]:
    """Return the plug-ins of the rules that are not built in, by rule."""
    return {name: p for device in DEVICES for name, p in ordered(device).plugins.items()}


def brought_by(name: str) -> str | None:
    """Return the distribution of a rule, and its version; None for a built-in one."""
    plugin = plugins().get(name)
    return None if plugin is None else plugin.origin


def failures() -> tuple[PluginFailure, ...]:
    """Return the rules of other packages that are left out, with the reasons."""
    return tuple(dict.fromkeys(f for device in DEVICES for f in ordered(device).failures))
