"""Explains why a step is faster or slower than the previous one, from loops and machine code.

Each rule compares two facts and says what changed, and whether that helps or hurts. For a faster
step the helping changes are reported, for a slower one the hurting ones; if no known fact explains
a measured difference, that is said, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvmscope.learn.explain.change_rules import RULES
from tvmscope.learn.explain.machine_code import same_code
from tvmscope.learn.facts import Built, HotLoop, StepRun, Study
from tvmscope.messages import Text, msg

WIDE = 1.5
"""An undecided ratio with a wider interval is noise."""


def reasons(now: StepRun, before: StepRun | None, study: Study, most: int = 3) -> tuple[Text, ...]:
    """Return sentences about a measured step, the most important first."""
    if now.built is None:
        return ()
    if not now.built.right:
        return (_wrong(now.built),)
    if before is None or before.built is None or now.verdict is None:
        return tuple(_alone(now, study))
    alike = now.threads == before.threads
    if alike and same_code(before.built.assembly, now.built.assembly):
        return (_same(now),)
    if noise := _noise(now):
        return (noise,)
    found = [c for rule in RULES for c in rule(now, before, before.built, now.built, study)]
    helping = sorted((c for c in found if c.helps), key=lambda c: -c.weight)
    hurting = sorted((c for c in found if c.helps is False), key=lambda c: -c.weight)
    neutral = [c.text for c in found if c.helps is None]
    if now.verdict == "faster":
        told = [c.text for c in helping[:most]]
    elif now.verdict == "slower":
        told = [c.text for c in hurting[:most]]
    else:
        told = [c.text for c in (helping[:1] + hurting[:1])]
    if not told and now.verdict != "undecided":
        told = [_unexplained(now)]
    elif not found and _alike(before.built.hot, now.built.hot):
        told = [
            msg(
                "The innermost machine loop has as many instructions, loads and stores as before: "
                "LLVM had made the same of it."
            )
        ]
    elif now.verdict == "undecided" and (helping or hurting):
        told.append(msg("On this machine and at this size that is worth nothing measurable."))
    return (*told, *neutral[:1], *_alone(now, study))


def _alike(a: HotLoop | None, b: HotLoop | None) -> bool:
    """Whether two loops do the same by their counts."""
    if a is None or b is None:
        return False
    return replace(a, text=()) == replace(b, text=())


# ---- what is said without a comparison ---------------------------------------------------------


def _wrong(built: Built) -> Text:
    return msg(
        "The result is wrong: it differs from numpy by {error:.1e} of the largest value. "
        "A wrong kernel is never timed against a right one.",
        error=built.error,
    )


def _same(now: StepRun) -> Text:
    if now.verdict == "undecided":
        return msg(
            "The machine code is the same, instruction for instruction: the loops were renamed, "
            "not the work. So the time is the same too."
        )
    return msg(
        "The machine code is the same, instruction for instruction; the difference in time is "
        "the machine's, not the schedule's."
    )


def _noise(now: StepRun) -> Text | None:
    """Report an interval so wide that it says nothing about the schedule."""
    if now.verdict != "undecided" or now.ratio_ci95 is None:
        return None
    low, high = now.ratio_ci95
    if high < WIDE * low:
        return None
    return msg(
        "The machine is too restless to tell: between {low:.2g} and {high:.2g} times as fast. "
        "Measure again when nothing else runs.",
        low=low,
        high=high,
    )


def _alone(now: StepRun, study: Study) -> Iterator[Text]:
    """Report how near the roof a step is, if that is informative."""
    if now.share is None:
        return
    if now.share >= 0.8:
        yield msg(
            "It runs at {share:.0%} of the roof: what is left to gain is small.", share=now.share
        )
    elif now.share < 0.02:
        yield msg("It reaches {share:.1%} of what these cores can do.", share=now.share)


def _unexplained(now: StepRun) -> Text:
    return msg(
        "Neither the loops nor the counts of the innermost machine loop explain the difference; "
        "--asm shows both loops."
    )
