"""Shows a tuning run: its progress line, and the tasks as the session stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tvmscope.analysis.roofline import TOLERANCE
from tvmscope.core.tuning import Choice, Params, TunedTask, TuningTask
from tvmscope.messages import Seconds, Text, msg, sentences
from tvmscope.quantities import format_s
from tvmscope.tuning.plan import PlannedTask
from tvmscope.tuning.search.state import State

if TYPE_CHECKING:
    from tvmscope.tuning.proof.prove import Proof
    from tvmscope.tuning.search.loop import Search

_NAME_LIMIT = 40


def _name(task: TuningTask) -> str:
    """Return the task's workload, or its kernel's name if the workload is only a digest."""
    return task.kernel if task.key.startswith("tir ") else task.key


def progress_line(search: Search, state: State, left_s: float) -> Text:
    """Return `Task 3/24 | conv2d ... | current 120.1 / best 141.9 GFLOP/s | 64/200 | 61.3 ms`."""
    keys = list(search.states)
    space = len(state.task.candidates)
    count = len(state.tried)
    return msg(
        "Task {number}/{total} | {task} | {speed} | {tried} | model {time} | {left}",
        number=keys.index(state.task.key) + 1,
        total=len(keys),
        task=_name(state.task)[:_NAME_LIMIT],
        speed=_speed(state),
        tried=f"{count}/{space}" if count <= space and not state.second_layer else f"{count}",
        time=Seconds(search.model_s),
        left=_left(left_s),
    )


def _speed(state: State) -> Text:
    flops, last, best = state.task.flops, state.last_s, state.best_s
    if last is None or best is None:
        return msg("no valid candidate yet")
    roof = _roof(state)
    if flops is None:
        now, top = format_s(last), format_s(best)
    else:
        now, top = f"{flops / last / 1e9:.1f}", f"{flops / best / 1e9:.1f} GFLOP/s"
    return msg("current {now} / best {top}{roof}", now=now, top=top, roof=roof)


def _roof(state: State) -> Text:
    """Say how near the best candidate is to its roof, by the work that it does itself."""
    floor, predicted_s = state.planned.floor_of(state.best), state.predicted_s
    if floor is None or not floor.least_s or not predicted_s:
        return ""
    share = floor.least_s / predicted_s
    if share > TOLERANCE:  # measured alone, its data are warm; or an arithmetic roof means nothing
        return msg(", its data from the caches") if floor.by == "memory" else ""
    text = msg(", {share:.0%} of roof", share=min(share, 1.0))
    became = str(state.best.params.get("kernel", "")).startswith("winograd")
    if became and state.task.rule != "winograd":
        times = state.planned.least_s / predicted_s
        return sentences(text, msg("({times:.1f}x the direct roof)", times=times))
    return text


def _left(seconds: float) -> Text:
    if seconds >= 90:
        return msg("{minutes:.0f} min left", minutes=seconds / 60)
    return msg("{seconds:.0f} s left", seconds=seconds)


def tuned_tasks(
    planned: Sequence[PlannedTask],
    states: Mapping[str, State] | None = None,
    proof: Proof | None = None,
) -> tuple[TunedTask, ...]:
    """Return every task of the plan, with its results so far."""
    return tuple(_tuned(p, (states or {}).get(p.task.key), proof) for p in planned)


def _tuned(p: PlannedTask, state: State | None, proof: Proof | None) -> TunedTask:
    task = p.task
    plain = TunedTask(
        workload=task.key,
        kernel=task.kernel,
        rule=task.rule,
        calls=task.calls,
        total_s=p.total_s,
        share=p.share,
        least_s=p.least_s,
        flops=task.flops,
        candidates=len(task.candidates),
        expected_s=p.expected_s,
        expected_per_minute_s=p.expected_per_minute_s,
        earlier=p.tried,
        note=p.reason or "",
    )
    return plain if state is None else _searched(plain, state, proof)


def _searched(plain: TunedTask, state: State, proof: Proof | None) -> TunedTask:
    used = proof is not None and proof.accepted is True
    choice = proof.choices.get(plain.workload) if proof and used else None
    verdicts = proof.verdicts.get(plain.workload, []) if proof else []
    verdict = next(
        (v for v in reversed(verdicts) if choice and v.trial.candidate == choice.candidate), None
    )
    return replace(
        plain,
        trials=len(state.tried) - state.earlier,
        earlier=state.earlier,
        failed=state.failed,
        wrong=state.wrong,
        untuned_s=state.untuned_s,
        best_s=state.best_s,
        points=tuple(state.points),
        chosen=choice.candidate if choice else None,
        speedup=verdict.speedup if verdict else None,
        interval=verdict.interval if verdict else None,
        own=_own(state.task, choice) if choice else {},
        steps=proof.steps.get(plain.workload, ()) if proof and choice else (),
        parts=proof.parts.get(plain.workload, ()) if proof and choice else (),
        note=_note(state, verdicts, choice is not None, proof),
    )


def _own(task: TuningTask, choice: Choice) -> Params:
    """Return the rule's defaults for the parameters that a choice names."""
    own = task.lowering_for(choice.candidate).own
    return {name: own[name] for name in choice.candidate.params if name in own}


def _note(state: State, verdicts: Sequence[object], chosen: bool, proof: Proof | None) -> Text:
    if chosen:
        return ""
    if len(state.tried) <= 1:
        return msg("not searched")
    if state.fastest(1) == []:
        return msg("no candidate was faster")
    if proof is None or not verdicts:
        return msg("not validated")
    if proof.accepted is False:
        return proof.reason
    return msg("not significantly faster when measured again")
