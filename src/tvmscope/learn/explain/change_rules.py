"""The rules that find what changed between two steps, and whether it helps or hurts.

A rule compares two facts, of the loops, the machine code or the counters, and yields its changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvmscope.learn.facts import Built, HotLoop, StepRun, Study
from tvmscope.messages import Bytes, Seconds, Text, msg, msgn

FEW_SETS = 4
"""The numbers of cache sets must differ by this factor before conflicts are mentioned."""
NOTABLE = 1.3
"""Smaller changes of a count are not worth a sentence."""
A_CAUSE = 32.0
"""The weight of what brings the other changes about: it is told before them."""


@dataclass(frozen=True)
class Change:
    """A difference between two steps; `helps` is None if it says nothing about speed."""

    text: Text
    helps: bool | None
    weight: float = 1.0
    """The size of the change, as a ratio: larger changes are mentioned first."""


Rule = Callable[[StepRun, StepRun, Built, Built, Study], Iterator[Change]]


def _threads(now: StepRun, before: StepRun, a: Built, b: Built, study: Study) -> Iterator[Change]:
    if now.uses > before.uses:
        text = msgn(
            "The outer loop's {turns} turns go to {count} thread instead of {old}.",
            "The outer loop's {turns} turns go to {count} threads instead of {old}.",
            count=now.uses,
            old=before.uses,
            turns=b.parallel,
        )
        yield Change(text, True, now.uses / before.uses)
    elif now.uses < before.uses:
        text = msg("Only {now} of {old} threads have work.", now=now.uses, old=before.uses)
        yield Change(text, False, before.uses / now.uses)
    elif b.parallel > a.parallel and study.threads == 1:
        yield Change(msg("There is one thread here: handing out work can only cost."), False)


def _launches(now: StepRun, before: StepRun, a: Built, b: Built, study: Study) -> Iterator[Change]:
    old, new = a.launches, b.launches
    if new > max(old, 1):
        text = msgn(
            "Work is handed out {count} time a run, before {old}: each time costs some "
            "microseconds, in which every thread waits.",
            "Work is handed out {count} times a run, before {old}: each time costs some "
            "microseconds, in which every thread waits.",
            count=new,
            old=old,
        )
        yield Change(text, False, float(new))
    elif old > max(new, 1):
        text = msg("Work is handed out {new} times a run, before {old}.", new=new, old=old)
        yield Change(text, True, float(old))


def _width(now: StepRun, before: StepRun, a: Built, b: Built, study: Study) -> Iterator[Change]:
    if a.hot is None or b.hot is None or a.hot.vector_bits == b.hot.vector_bits:
        return
    old, new = (_lanes(hot) for hot in (a.hot, b.hot))
    text = msg(
        "One arithmetic instruction now works on {new} numbers, before on {old} ({bits}-bit "
        "registers).",
        new=new,
        old=old,
        bits=max(b.hot.vector_bits, 32),
    )
    yield Change(text, new > old, max(new / old, old / new))


def _lanes(hot: HotLoop) -> int:
    return max(1, hot.vector_bits // 32)


def _strides(now: StepRun, before: StepRun, a: Built, b: Built, study: Study) -> Iterator[Change]:
    if a.memory is None or b.memory is None:
        return
    old = {x.buffer: x.stride_bytes for x in a.memory.accesses}
    line = study.caches[0].line_bytes
    for access in b.memory.accesses:
        was, now_at = old.get(access.buffer), access.stride_bytes
        if was is None or abs(was) == abs(now_at):
            continue
        if abs(was) >= line > abs(now_at):
            text = msg(
                "The innermost loop moves {new} in {buffer} from turn to turn, before {old}: "
                "neighbours in memory, so that a cache line of {line} serves many turns.",
                buffer=access.buffer,
                new=Bytes(abs(now_at)),
                old=Bytes(abs(was)),
                line=Bytes(line),
            )
            yield Change(text, True, min(16.0, abs(was) / max(abs(now_at), 4)))
        elif abs(now_at) >= line > abs(was):
            text = msg(
                "The innermost loop jumps {new} in {buffer} from turn to turn, before {old}: "
                "every turn needs another cache line of {line}.",
                buffer=access.buffer,
                new=Bytes(abs(now_at)),
                old=Bytes(abs(was)),
                line=Bytes(line),
            )
            yield Change(text, False, min(16.0, abs(now_at) / max(abs(was), 4)))


def _conflicts(now: StepRun, before: StepRun, a: Built, b: Built, study: Study) -> Iterator[Change]:
    """Report strides of whole lines that map to few sets of the first-level cache."""
    if a.memory is None or b.memory is None:
        return
    cache = study.caches[0]
    old_strides = {x.buffer: x.stride_bytes for x in a.memory.accesses}
    for access in b.memory.accesses:
        was, now_at = old_strides.get(access.buffer), access.stride_bytes
        if was is None or min(abs(was), abs(now_at)) < cache.line_bytes:
            continue
        old, new = cache.sets_used(was), cache.sets_used(now_at)
        if max(old, new) >= FEW_SETS * min(old, new):
            text = msg(
                "Steps of {stride} bytes in {buffer} fall into {new} of the {cache} cache's {all} "
                "sets, before into {old}; lines that share a set drive each other out.",
                stride=abs(now_at),
                buffer=access.buffer,
                new=new,
                old=old,
                cache=cache.name,
                all=cache.all_sets,
            )
            yield Change(text, new > old, float(max(old, new) / min(old, new)))


def _traffic(now: StepRun, before: StepRun, a: Built, b: Built, study: Study) -> Iterator[Change]:
    """Report the cache whose traffic changed most."""
    if a.memory is None or b.memory is None:
        return
    best: Change | None = None
    for name, new in b.memory.traffic_bytes.items():
        old = a.memory.traffic_bytes.get(name)
        if not old or not new:
            continue
        factor = max(old / new, new / old)
        if factor < NOTABLE or (best and factor <= best.weight):
            continue
        text = msg(
            "By the loops, {new} must come from beyond the {cache} cache{cost}, before {old}.",
            new=Bytes(new),
            old=Bytes(old),
            cache=name,
            cost=_cost(name, new, now, study),
        )
        best = Change(text, new < old, min(factor, 32.0))
    if best:
        yield best


def _cost(cache: str, moved: float, now: StepRun, study: Study) -> Text:
    """Return the time of that traffic at the measured bandwidth of the level beyond the cache."""
    behind = {"L1": "L2", "L2": "L3"}.get(cache, "DRAM")
    rate = study.bandwidth(behind, now.uses)
    if rate is None:
        return ""
    return msg(
        " ({time} at the measured {rate:.0f} GB/s of {level})",
        rate=rate * 1e-9,
        level=behind,
        time=Seconds(moved / rate),
    )


def _registers(now: StepRun, before: StepRun, a: Built, b: Built, study: Study) -> Iterator[Change]:
    """Report loads and stores for each arithmetic instruction of the hot loop."""
    if a.hot is None or b.hot is None or not a.hot.math or not b.hot.math:
        return
    old, new = (hot.loads / hot.math for hot in (a.hot, b.hot))
    if new and old / new >= NOTABLE:
        text = msg(
            "Each load feeds {new:.1f} arithmetic instructions, before {old:.1f}: values stay in "
            "registers and are used again.",
            new=1 / new,
            old=1 / old,
        )
        yield Change(text, True, old / new)
    elif old and new / old >= NOTABLE:
        text = msg(
            "Each arithmetic instruction needs {new:.1f} loads, before {old:.1f}.", new=new, old=old
        )
        yield Change(text, False, new / old)
    yield from _stores(a.hot, b.hot)


def _stores(a: HotLoop, b: HotLoop) -> Iterator[Change]:
    if a.stores and not b.stores:
        text = msg(
            "The innermost loop stores nothing any more (before: {count} stores a turn): the sums "
            "wait in registers until they are finished.",
            count=a.stores,
        )
        yield Change(text, True, 2.0)
    elif b.stores and not a.stores:
        text = msg(
            "The innermost loop now stores {count} times a turn: the sums go to memory and back.",
            count=b.stores,
        )
        yield Change(text, False, 2.0)


def _sums(now: StepRun, before: StepRun, a: Built, b: Built, study: Study) -> Iterator[Change]:
    if a.hot is None or b.hot is None or not a.hot.sums or not b.hot.sums:
        return
    if a.hot.stores or b.hot.stores:  # a value stored in each iteration is not a sum that continues
        return
    old, new = a.hot.sums, b.hot.sums
    if new > old and old < 8:
        text = msgn(
            "{new} sums are under way at once, before {count}: a multiply-add need not wait for "
            "the result of the one before it.",
            "{new} sums are under way at once, before {count}: fewer multiply-adds wait for a "
            "result.",
            count=old,
            new=new,
        )
        yield Change(text, True, min(new, 8) / old)
    elif new < old and new < 8:
        text = msgn(
            "Only {count} sum is under way at once, before {old}: each multiply-add waits for the "
            "result of the one before.",
            "Only {count} sums are under way at once, before {old}: multiply-adds wait for "
            "results.",
            count=new,
            old=old,
        )
        yield Change(text, False, min(old, 8) / new)


def _spills(now: StepRun, before: StepRun, a: Built, b: Built, study: Study) -> Iterator[Change]:
    old, new = (0 if x.hot is None else x.hot.spills for x in (a, b))
    if new > old:
        text = msg(
            "The tile no longer fits the registers: {count} values a turn go through the stack.",
            count=new,
        )
        yield Change(text, False, 3.0)
    elif old > new:
        yield Change(msg("The values fit the registers again; nothing is spilled."), True, 3.0)


def _awkward(now: StepRun, before: StepRun, a: Built, b: Built, study: Study) -> Iterator[Change]:
    """Report gathers, shuffles and conditions."""
    if a.hot is not None and b.hot is not None:
        old, new = (hot.gathers + hot.shuffles for hot in (a.hot, b.hot))
        if new > old:
            text = msg(
                "The innermost loop collects its vectors from scattered places: {count} shuffles "
                "and gathers a turn.",
                count=new,
            )
            yield Change(text, False, 2.5)
        elif old > new:
            text = msg("The shuffles and gathers ({count} a turn) are gone.", count=old)
            yield Change(text, True, 2.5)
    if b.guards > a.guards:
        text = msg("The factor does not divide the loop, so that a condition stands inside it.")
        yield Change(text, False, A_CAUSE)
    elif a.guards > b.guards:
        yield Change(msg("The condition inside the loop is gone."), True, A_CAUSE)


def _instructions(
    now: StepRun, before: StepRun, a: Built, b: Built, study: Study
) -> Iterator[Change]:
    """Report the processor's own count if it is available, else an estimate from the code."""
    old, new = (_counted(run, "instructions") for run in (before, now))
    if old and new:
        factor = old / new
        if max(factor, 1 / factor) >= NOTABLE:
            text = msg(
                "The processor counted {new:.3g} instructions, before {old:.3g}.", new=new, old=old
            )
            yield Change(text, factor > 1, max(factor, 1 / factor))
        return
    if a.hot is None or b.hot is None:
        return
    first, second = a.hot.flops_per_instruction, b.hot.flops_per_instruction
    if first and second and max(first / second, second / first) >= NOTABLE:
        text = msg(
            "The innermost loop does {new:.1f} floating-point operations per instruction, before "
            "{old:.1f}.",
            new=second,
            old=first,
        )
        yield Change(text, second > first, max(first / second, second / first) * 0.9)


def _counted(run: StepRun, event: str) -> float | None:
    return run.counted.values.get(event) if run.counted else None


RULES: tuple[Rule, ...] = (
    _threads,
    _launches,
    _width,
    _strides,
    _conflicts,
    _traffic,
    _registers,
    _sums,
    _spills,
    _awkward,
    _instructions,
)
