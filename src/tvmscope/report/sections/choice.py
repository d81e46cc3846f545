"""Describes the candidate that tuning chose for a task, and the worth of each of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvmscope.core.diagnosis.facts import RuleFacts
from tvmscope.core.tuning import Part, TunedTask
from tvmscope.messages import _, marked
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.sections.schedule import in_words

_MOST_STEPS = 40

_WITHOUT = {
    "parallel": marked("all on one thread: no loop in parallel"),
    "vectorize": marked("one value at a time: no loop in vector registers"),
    "unroll": marked("no loop unrolled"),
    "compute_at": marked("each stage finished before the next: none computed inside another"),
    "decompose_reduction": marked("sums set to zero inside the loop"),
    "set_scope": marked("tiles kept in memory, not in registers"),
    "prefetch": marked("weights not prefetched"),
}


def sentences(task: TunedTask, rules: Sequence[RuleFacts] = ()) -> list[str]:
    """Describe the choice; empty if nothing was chosen. `rules` have words for parameters."""
    if task.chosen is None:
        return []
    ordered = sorted(rules, key=lambda rule: rule.name != task.rule)
    begun = [_parameter(task, ordered, name, value) for name, value in task.chosen.params.items()]
    steps = [clean(step) for step in in_words(task.steps)]
    rest = len(steps) - _MOST_STEPS
    more = [_("... and {n} more steps").format(n=rest)] if rest > 0 else []
    return begun + steps[:_MOST_STEPS] + more


def _parameter(task: TunedTask, rules: Sequence[RuleFacts], name: str, value: int | str) -> str:
    text = _(_words(rules, name, value) or "{name} is {value}")
    text = text.format(name=clean(name, NAME_LIMIT), value=clean(str(value), NAME_LIMIT))
    own = task.own.get(name)
    if own is None:
        return text
    same = _words(rules, name, own)
    said = _(same) if same and "{value}" not in same else clean(str(own), NAME_LIMIT)
    return _("{text} (default of the rule: {own})").format(text=text, own=said)


def _words(rules: Sequence[RuleFacts], name: str, value: int | str) -> str | None:
    """Return the meaning of a parameter's value, from the first rule that has words for it."""
    found = (rule.sentence(name, value) for rule in rules)
    return next((words for words in found if words), None)


@dataclass(frozen=True)
class Worth:
    """A part of a choice, ready to be printed."""

    part: str
    """The part: `unroll = 8` or a primitive's name."""
    without: str
    """The kernel without it."""
    factor: str
    """How many times as long it then takes, or why that is not known."""


def worth(task: TunedTask) -> list[Worth]:
    """Return the parts of a choice, the most valuable first; those that cannot be removed last."""
    known = sorted((p for p in task.parts if p.factor), key=lambda p: -(p.factor or 0))
    return [_worth(task, p) for p in (*known, *(p for p in task.parts if not p.factor))]


def _worth(task: TunedTask, part: Part) -> Worth:
    name = clean(part.name, NAME_LIMIT)
    if part.kind == "primitive":
        return Worth(name, _(_WITHOUT.get(part.name, marked("left out"))), _factor(part))
    value = task.chosen.params.get(part.name) if task.chosen else None
    own = task.own.get(part.name)
    shown = name if value is None else f"{name} = {clean(str(value), NAME_LIMIT)}"
    back = _("default of the rule")
    without = back if own is None else f"{back}: {clean(str(own), NAME_LIMIT)}"
    return Worth(shown, without, _factor(part))


def _factor(part: Part) -> str:
    if part.factor is None or part.interval is None:
        why = clean(part.reason or _("unknown"), 120)
        return _("unknown: {why}").format(why=why)
    low, high = part.interval
    return f"{part.factor:.2f}x ({low:.2f}-{high:.2f})"
