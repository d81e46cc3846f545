"""CPU schedule rules, in the order in which they are offered a function."""

from __future__ import annotations

from tvmscope.compiler.schedules.cpu.fallback import schedule_fallback

RULES = (("fallback", schedule_fallback),)
