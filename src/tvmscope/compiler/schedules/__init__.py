"""Schedule rules: `cpu/` and `cuda/` hold their manifests, `apply.py` offers them each kernel."""

from __future__ import annotations

from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.schedules import cpu, cuda


def rules(device: str) -> tuple[ScheduleRule, ...]:
    """The rules of a device, in the order in which they are offered a kernel."""
    return {"cpu": cpu.RULES, "cuda": cuda.RULES}[device]


def brought_by(name: str) -> str | None:
    """The distribution that a rule comes from, and its version; None for a built-in one."""
    return None


def rule_named(name: str) -> ScheduleRule | None:
    """The rule of any device."""
    every = (*rules("cpu"), *rules("cuda"))
    return next((rule for rule in every if rule.name == name), None)
