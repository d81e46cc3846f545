"""Measures the worth of a choice's parts: each is removed alone, checked and timed.

A parameter is reset to the rule's default, for a generated CUDA kernel to the value that is used
without tuning. A primitive is removed from the schedule's trace
wherever it occurs: parallel loops become serial, and so on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tvmscope.core.tuning import Candidate, Part, TuningTask
from tvmscope.messages import msg
from tvmscope.tuning.proof.validate import Validator, Verdict

AT_ONCE = 3
"""Kernels that are measured in turns with the chosen one; each waits in its own process."""

Step = list[Any]
"""A step of a trace: [kind, inputs, attributes, results]."""


def _is(*kinds: str) -> Callable[[Step], bool]:
    return lambda step: step[0] in kinds


def _notes(*keys: str) -> Callable[[Step], bool]:
    return lambda step: step[0] == "Annotate" and str(step[2][0]).startswith(keys)


PRIMITIVES: dict[str, tuple[Callable[[Step], bool], ...]] = {
    "parallel": (_is("Parallel"),),
    "vectorize": (_is("Vectorize"),),
    "unroll": (_is("Unroll"), _notes("pragma_auto_unroll", "pragma_unroll")),
    "compute_at": (_is("ComputeAt", "ReverseComputeAt"),),
    "decompose_reduction": (_is("DecomposeReduction"),),
    "set_scope": (_is("SetScope"),),
    "prefetch": (_notes("tvmscope.prefetch"),),
}
"""The steps by which each primitive is recognised; primitives without which most schedules make no
sense (splitting, ordering) are not among them."""


def without(trace: str, primitive: str) -> str | None:
    """Return a trace without a primitive; None if it does not occur."""
    steps, decisions = json.loads(trace)
    kept = [
        place
        for place, step in enumerate(steps)
        if not any(is_it(step) for is_it in PRIMITIVES[primitive])
    ]
    if len(kept) == len(steps):
        return None
    moved = {place: now for now, place in enumerate(kept)}
    return json.dumps(
        [[steps[place] for place in kept], [[moved[place], drawn] for place, drawn in decisions]],
        separators=(",", ":"),
    )


def variants(
    task: TuningTask, winner: Candidate, trace: str | None
) -> Iterator[tuple[Part, Candidate]]:
    """Yield each part of a candidate, and the candidate without it; `trace` is its schedule, None
    if there is none: a generated kernel has a template, whose parameters are all given."""
    if trace is None:
        own, chosen = task.lowering_for(winner).own, winner.params
        changed = [name for name in own if chosen[name] != own[name]]
        for name in () if "template" in changed else changed:  # that is another kernel altogether
            yield Part(name=name, kind="parameter"), Candidate(params={**chosen, name: own[name]})
        return
    for name in winner.params if winner.trace is None else ():
        rest = {key: value for key, value in winner.params.items() if key != name}
        yield Part(name=name, kind="parameter"), Candidate(params=rest)
    begins = task.lowering_for(winner).params
    for name in PRIMITIVES:
        if (left := without(trace, name)) is not None:
            yield Part(name=name, kind="primitive"), Candidate(params=begins, trace=left)


def weigh(
    validator: Validator,
    task: TuningTask,
    winner: Candidate,
    *,
    over: Callable[[], bool] = lambda: False,
) -> list[Part]:
    """Return the worth of each part, until `over` returns true."""
    trace = validator.workshop.trace_of(task, winner)[0] if task.loops else None
    left = list(variants(task, winner, trace))
    found: list[Part] = []
    while left and not over():
        batch, left = left[:AT_ONCE], left[AT_ONCE:]
        verdicts = validator.validate(task, [candidate for _, candidate in batch], winner)
        by_id = {verdict.trial.candidate.id: verdict for verdict in verdicts}
        found += [_weighed(part, by_id.get(candidate.id)) for part, candidate in batch]
    return found


def _weighed(part: Part, verdict: Verdict | None) -> Part:
    if verdict is None:
        return replace(part, reason=msg("it could not be compared with the chosen kernel"))
    if verdict.trial.status != "ok" or not verdict.speedup or verdict.interval is None:
        why = verdict.trial.reason or msg("too few rounds for an interval")
        return replace(part, reason=why)
    low, high = verdict.interval
    return replace(part, factor=1 / verdict.speedup, interval=(1 / high, 1 / low))
