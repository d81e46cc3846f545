"""Plans what is worth tuning: each task's share of the model, its roof, and its cost.

The roof is a limit for every schedule. The expected result of a search is an assumption: as near
its roof as the best kernel of the same rule in the same model, and at least three quarters of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, NamedTuple

from tvmscope.analysis.roofline import TOLERANCE, Limits
from tvmscope.core.profile import KernelTime, Products, Profile
from tvmscope.core.row import RowKey
from tvmscope.core.tuning import Candidate, Trial, TuningTask, because
from tvmscope.messages import Text, msg

SMALL = 0.002
"""Tasks below this share of the model are not tuned: halving one would gain a thousandth."""
AT_ROOF = 0.95
"""Roofs repeat within a few percent; above this share there is nothing to gain."""
TRIAL_S = 0.26
"""The assumed time to build and time one candidate, until a search has measured it (230 a minute,
as in ResNet-50's run of docs/benchmarks.md)."""
HOPED = 0.75
"""The share of its roof that any kernel is assumed to reach."""
SECOND_LAYER_TRIALS = 64
"""The number of trials assumed for MetaSchedule, whose space is unlimited."""


class Floor(NamedTuple):
    """The least time that the roofs allow for all calls of a kernel, and the limiting roof."""

    least_s: float
    by: Literal["compute", "memory"]


@dataclass(frozen=True, kw_only=True)
class PlannedTask:
    """A task with its times in the untuned model."""

    task: TuningTask
    total_s: float
    """The time of all calls in one run."""
    share: float
    """The share of the model's end-to-end time."""
    least_s: float
    """The least time that the roof allows for all calls; 0 if no roof is known."""
    floors: tuple[Floor, ...] = ()
    """The floors of the task's lowerings, each by its own work; none if no roof is known."""
    tried: int = 0
    reachable: float = HOPED
    """The share of the roof that it is assumed to reach."""
    reason: Text | None = None
    """Why the task is not tuned."""

    @property
    def roof_share(self) -> float | None:
        """The share of its roof that it reaches now."""
        return self.least_s / self.total_s if self.least_s and self.total_s else None

    def floor_of(self, candidate: Candidate) -> Floor | None:
        """Return the floor of a candidate's kernel."""
        index = self.task.lowerings.index(self.task.lowering_for(candidate))
        return self.floors[index] if self.floors else None

    @property
    def headroom_s(self) -> float:
        """The largest possible saving per run of the model."""
        return max(0.0, self.total_s - self.least_s)

    @property
    def expected_s(self) -> float | None:
        """The saving if the task reaches the assumed share of its roof."""
        if self.roof_share is None:
            return None
        return max(0.0, self.total_s * (1 - self.roof_share / self.reachable))

    @property
    def left(self) -> int:
        """The candidates that a search would try."""
        if len(self.task.candidates) <= 1:
            return SECOND_LAYER_TRIALS
        return max(0, len(self.task.candidates) - self.tried)

    @property
    def expected_per_minute_s(self) -> float | None:
        """The expected saving per minute of search."""
        if self.expected_s is None or self.left == 0:
            return None
        return self.expected_s / (self.left * TRIAL_S / 60.0)


def make_plan(
    tasks: Sequence[TuningTask],
    profile: Profile | None,
    limits: Limits | None,
    *,
    ops: Collection[str] = (),
    second_layer: bool = True,
    tried: Callable[[TuningTask], int] = lambda _: 0,
) -> list[PlannedTask]:
    """Return all tasks, identical ones merged, those with the most to gain first.

    Without a profile no times are known (they are 0), and those with the most work come first.
    """
    if profile is None or limits is None:
        unknown = [
            PlannedTask(task=t, total_s=0.0, share=0.0, least_s=0.0, tried=tried(t))
            for t in merged(tasks)
        ]
        asked = [replace(p, reason=_not_asked(p, ops)) for p in unknown]
        return sorted(asked, key=lambda p: (p.reason is not None, -_flops(p.task)))
    kernels = {kernel.name: _sum(profile.kernels, kernel.name) for kernel in profile.kernels}
    planned = [_planned(task, kernels, profile, limits, tried(task)) for task in merged(tasks)]
    best: dict[str | None, float] = {}
    for p in planned:
        reached = min(1.0, p.roof_share or 0.0)
        best[p.task.rule] = max(best.get(p.task.rule, HOPED), reached)
    planned = [
        replace(p, reachable=best[p.task.rule], reason=_reason(p, ops, second_layer))
        for p in planned
    ]
    return sorted(planned, key=lambda p: (p.reason is not None, -p.headroom_s))


def merged(tasks: Iterable[TuningTask]) -> list[TuningTask]:
    """Merge identical workloads into one task with the calls of all."""
    found: dict[str, TuningTask] = {}
    for task in tasks:
        if (known := found.get(task.key)) is None:
            found[task.key] = task
        else:
            ops = tuple(dict.fromkeys((*known.source_ops, *task.source_ops)))
            found[task.key] = replace(known, calls=known.calls + task.calls, source_ops=ops)
    return list(found.values())


def profile_of(tasks: Sequence[TuningTask], trials: Iterable[Trial], key: RowKey) -> Profile:
    """Return a profile from kernels that were measured alone; failed ones are left out."""
    by_key = {task.key: task for task in merged(tasks)}
    kernels = tuple(
        KernelTime(
            name=by_key[trial.workload].kernel,
            source_ops=by_key[trial.workload].source_ops,
            calls=by_key[trial.workload].calls,
            total_s=by_key[trial.workload].calls * median(trial.seconds),
        )
        for trial in trials
        if trial.status == "ok"
    )
    whole_s = sum(kernel.total_s for kernel in kernels)
    return Profile(
        key=key,
        kernels=kernels,
        how=msg("each kernel by itself"),
        runs=1,
        end_to_end_s=whole_s,
        profiled_s=whole_s,
    )


def _flops(task: TuningTask) -> float:
    return task.calls * (task.flops or 0.0)


def _sum(kernels: Sequence[KernelTime], name: str) -> KernelTime:
    """Return a kernel's sum over all source operators that it computes."""
    same = [k for k in kernels if k.name == name]
    return replace(same[0], calls=sum(k.calls for k in same), total_s=sum(k.total_s for k in same))


def _planned(
    task: TuningTask, kernels: dict[str, KernelTime], profile: Profile, limits: Limits, tried: int
) -> PlannedTask:
    ran = kernels.get(task.kernel)
    total_s = ran.total_s / max(1, ran.calls) * task.calls if ran else 0.0
    works = [(task.flops, task.bytes), *((x.flops, x.bytes) for x in task.lowerings[1:])]
    products = ran.products if ran else None
    floors = tuple(_floor(task, total_s, *work, products, limits) for work in works)
    least_s = floors[0].least_s
    if least_s > total_s * TOLERANCE:  # impossible: roofs measured on a busy machine mean nothing
        least_s, floors = 0.0, ()
    return PlannedTask(
        task=task,
        total_s=total_s,
        share=total_s / profile.end_to_end_s if profile.end_to_end_s > 0 else 0.0,
        least_s=min(least_s, total_s),
        floors=floors,
        tried=tried,
    )


def _floor(
    task: TuningTask,
    total_s: float,
    flops: float | None,
    size: float | None,
    products: Products | None,
    limits: Limits,
) -> Floor:
    """Return the limit of every schedule: arithmetic at the compute roof, data from the fastest
    memory that holds it all. (A profile compares a kernel with the memory that its time suggests,
    which would call a slow kernel that fits a small cache bound by a larger one.)"""
    work = KernelTime(
        name=task.kernel,
        source_ops=(),
        calls=task.calls,
        total_s=total_s,
        flops=None if flops is None else flops * task.calls,
        bytes=None if size is None else size * task.calls,
        products=products,
    )
    memory_s, compute_s = 0.0, limits.compute_s(work) or 0.0
    if work.bytes is not None and limits.levels:
        each = work.bytes / max(1, work.calls)
        holding = [x for x in limits.levels if x.size_bytes is None or x.size_bytes >= each]
        level = holding[-1] if holding else limits.levels[0]  # from slow to fast
        memory_s = work.bytes / level.bytes_per_s
    if memory_s > work.total_s:  # the caches are larger than measured
        memory_s = limits.memory_s(work) or 0.0
    return max(Floor(memory_s, "memory"), Floor(compute_s, "compute"))


def _not_asked(p: PlannedTask, ops: Collection[str]) -> Text | None:
    words = (p.task.rule or "", p.task.key, p.task.kernel, *p.task.source_ops)
    wanted = not ops or any(op in word for op in ops for word in words)
    return None if wanted else msg("not asked for")


def _reason(p: PlannedTask, ops: Collection[str], second_layer: bool) -> Text | None:
    if reason := _not_asked(p, ops):
        return reason
    if p.total_s == 0.0:
        return msg("did not run")
    if p.share < SMALL:
        return because(msg("too small"), msg("{share:.2%} of the model", share=p.share))
    if p.roof_share is not None and p.roof_share >= AT_ROOF:
        return msg("at its roof")
    if len(p.task.candidates) <= 1 and not second_layer:
        return msg("no space to search")
    if p.task.candidates and p.left == 0 and not second_layer:
        count = len(p.task.candidates)
        return because(msg("tuned already"), msg("all {count} candidates were tried", count=count))
    return None
