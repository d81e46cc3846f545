"""What tuning chose for a task in words: parameters beside the rule's own, or a trace's steps; and
what each part of the choice is worth."""

from __future__ import annotations

from dataclasses import dataclass

from tvmscope.core.tuning import Part, TunedTask
from tvmscope.messages import _
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.sections.schedule import in_words

_MOST_STEPS = 40

_PARAMETERS = {
    "columns": _("{value} columns of the result are kept in registers at a time"),
    "tile": _("{value} columns of the result are kept in registers at a time"),
    "rows": _("{value} rows of the result are computed together"),
    "chunk": _("{value} inputs are summed before the next results' turn"),
    "unroll": _("{value} steps of the sums are written out one behind the other"),
    "order": _("the work is handed out with the {value} outermost"),
    "strips": _("each task takes {value} strips of tiles through all of Winograd's stages"),
}
_CHOICES = {
    ("finish", "1"): _("each tile goes from registers through the epilogue into the result"),
    ("finish", "0"): _("whole rows are summed up in memory before the epilogue"),
    ("prefetch", "1"): _("the next weights are fetched while the present ones are used"),
    ("prefetch", "0"): _("weights are not fetched ahead"),
    ("share", "1"): _("each core takes its share of tiles through all of Winograd's stages"),
    ("strips", "0"): _("each of Winograd's stages is finished before the next"),
    ("strips", "1"): _("each task takes a strip of tiles through all of Winograd's stages"),
    ("kernel", "direct"): _("the convolution is computed directly, without Winograd's transform"),
    ("kernel", "winograd4"): _("Winograd's transform on tiles of 4x4 saves multiplications"),
    ("kernel", "winograd2"): _("Winograd's transform on tiles of 2x2 saves multiplications"),
}
_WITHOUT = {
    "parallel": _("all on one thread: no loop in parallel"),
    "vectorize": _("one value at a time: no loop in vector registers"),
    "unroll": _("no loop written out"),
    "compute_at": _("each stage finished before the next: none computed inside another"),
    "decompose_reduction": _("sums set to zero inside the loop"),
    "set_scope": _("tiles kept in memory, not in registers"),
    "prefetch": _("weights not fetched ahead"),
}


def sentences(task: TunedTask) -> list[str]:
    """What the choice does; none where nothing was chosen."""
    if task.chosen is None:
        return []
    begun = [_parameter(task, name, value) for name, value in task.chosen.params.items()]
    steps = [clean(step) for step in in_words(task.steps)]
    rest = len(steps) - _MOST_STEPS
    more = [_("... and {n} more steps").format(n=rest)] if rest > 0 else []
    return begun + steps[:_MOST_STEPS] + more


def _parameter(task: TunedTask, name: str, value: int | str) -> str:
    shown = clean(str(value), NAME_LIMIT)
    text = _CHOICES.get((name, str(value))) or _PARAMETERS.get(name, _("{name} is {value}"))
    text = text.format(name=clean(name, NAME_LIMIT), value=shown)
    own = task.own.get(name)
    if own is None:
        return text
    said = _CHOICES.get((name, str(own))) or clean(str(own), NAME_LIMIT)
    return _("{text} (the rule by itself: {own})").format(text=text, own=said)


@dataclass(frozen=True)
class Worth:
    """A part of a choice, ready to be printed."""

    part: str
    """What it is, as `unroll = 8` or a primitive's name."""
    without: str
    """What the kernel is without it."""
    factor: str
    """How many times as long it takes then, or why that is not known."""


def worth(task: TunedTask) -> list[Worth]:
    """The parts of a choice, the most valuable first; those that could not be taken back last."""
    known = sorted((p for p in task.parts if p.factor), key=lambda p: -(p.factor or 0))
    return [_worth(task, p) for p in (*known, *(p for p in task.parts if not p.factor))]


def _worth(task: TunedTask, part: Part) -> Worth:
    name = clean(part.name, NAME_LIMIT)
    if part.kind == "primitive":
        return Worth(name, _WITHOUT.get(part.name, _("left out")), _factor(part))
    value = task.chosen.params.get(part.name) if task.chosen else None
    own = task.own.get(part.name)
    shown = name if value is None else f"{name} = {clean(str(value), NAME_LIMIT)}"
    back = _("as the rule has it")
    without = back if own is None else f"{back}: {clean(str(own), NAME_LIMIT)}"
    return Worth(shown, without, _factor(part))


def _factor(part: Part) -> str:
    if part.factor is None or part.interval is None:
        why = clean(part.reason or _("unknown"), 120)
        return _("not known: {why}").format(why=why)
    low, high = part.interval
    return f"{part.factor:.2f}x ({low:.2f}-{high:.2f})"
