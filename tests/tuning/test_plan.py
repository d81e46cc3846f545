"""The plan: shares and headroom as profiled, what is left alone and why, the order of trials."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.rows import key
from support.trials import failed, trial
from tvmscope.analysis.roofline import Level, Limits
from tvmscope.core.profile import KernelTime, Profile
from tvmscope.core.tuning import Candidate, Lowering, TuningTask
from tvmscope.tuning.plan import TRIAL_S, make_plan, profile_of
from tvmscope.tuning.search.proposals import next_of

LIMITS = Limits(flops_per_s=1e9, levels=())
SPACE = tuple(
    Candidate(params=p) for p in ({}, {"a": 1}, {"a": 2}, {"a": 1, "b": 1}, {"a": 2, "b": 1})
)


def task(kernel: str, *, calls: int = 1, flops: float = 1e6, rule: str | None = "r") -> TuningTask:
    return TuningTask(
        key=f"{kernel} workload",
        rule=rule,
        kernel=kernel,
        calls=calls,
        flops=flops,
        bytes=None,
        lowerings=(Lowering(params={}, function="f.json"),),
        candidates=SPACE if rule else SPACE[:1],
        source_ops=(f"{kernel}_op",),
    )


def profile(**seconds: float) -> Profile:
    kernels = tuple(
        KernelTime(name=name, source_ops=(), calls=2, total_s=s) for name, s in seconds.items()
    )
    return Profile(
        key=key("tvmscope"),
        kernels=kernels,
        how="",
        runs=1,
        end_to_end_s=sum(seconds.values()),
        profiled_s=1.0,
    )


def test_share_roof_and_headroom_follow_from_the_profile() -> None:
    (planned,) = make_plan([task("conv", calls=2)], profile(conv=8e-3, other=2e-3), LIMITS)
    assert planned.share == pytest.approx(0.8)
    assert planned.roof_share == pytest.approx(0.25)  # 2 Mflop at 1 GFLOP/s, in 8 ms
    assert planned.headroom_s == pytest.approx(6e-3)
    assert planned.expected_s == pytest.approx(8e-3 * (1 - 0.25 / 0.75))
    assert planned.expected_per_minute_s == pytest.approx(
        (planned.expected_s or 0) * 60 / (5 * TRIAL_S)
    )
    assert planned.reason is None


@pytest.mark.parametrize(
    "size, least_s",
    [(1e3, 1e-8), (1e5, 1e-5), (1e7, 1e-2)],  # from the small cache, the large one, the memory
)
def test_data_comes_from_the_fastest_memory_that_holds_it(size: float, least_s: float) -> None:
    levels = (Level(1e9, 1 << 28), Level(1e10, 1 << 20), Level(1e11, 1 << 14))
    moving = replace(task("conv", flops=1.0), bytes=size)
    (planned,) = make_plan([moving], profile(conv=1.0), Limits(1e12, levels))
    assert planned.least_s == pytest.approx(least_s)


def test_the_task_with_the_most_headroom_comes_first() -> None:
    tasks = [task("small", calls=2), task("large", calls=2)]
    planned = make_plan(tasks, profile(small=4e-3, large=9e-3), LIMITS)
    assert [p.task.kernel for p in planned] == ["large", "small"]


def test_a_kernel_above_its_roof_is_tuned_as_if_no_roof_were_known() -> None:
    (planned,) = make_plan([task("conv", flops=1e8)], profile(conv=8e-3), LIMITS)
    assert planned.roof_share is None
    assert planned.reason is None
    assert planned.headroom_s == planned.total_s


def test_identical_workloads_are_one_task() -> None:
    twice = [task("conv"), replace(task("conv"), source_ops=("other_op",))]
    (planned,) = make_plan(twice, profile(conv=8e-3), LIMITS)
    assert planned.task.calls == 2
    assert planned.task.source_ops == ("conv_op", "other_op")


@pytest.mark.parametrize(
    "tasks, options, reason",
    [
        ([task("tiny")], {}, "too small"),
        ([task("conv", flops=4e6, calls=2)], {}, "at its roof"),
        ([task("conv")], {"ops": ("matmul",)}, "not asked for"),
        ([task("absent")], {}, "did not run"),
        ([task("conv", rule=None)], {"second_layer": False}, "no space"),
        ([task("conv")], {"second_layer": False, "tried": lambda _: 5}, "tuned already"),
    ],
)
def test_what_is_not_tuned_says_why(
    tasks: list[TuningTask], options: dict[str, object], reason: str
) -> None:
    (planned,) = make_plan(tasks, profile(conv=8e-3, tiny=1e-6), LIMITS, **options)  # type: ignore[arg-type]
    assert reason in (planned.reason or "")


def test_operators_can_be_asked_for_by_any_of_their_names() -> None:
    for name in ("conv", "conv_op", "r", "conv workload"):
        (planned,) = make_plan([task("conv")], profile(conv=8e-3), LIMITS, ops=(name,))
        assert planned.reason is None


def test_the_rules_order_comes_first_then_neighbours_of_the_best() -> None:
    assert next_of(SPACE, set(), {}, 3) == list(SPACE[:3])
    tried = {c.id for c in SPACE[:3]}
    times = dict(zip((c.id for c in SPACE[:3]), (3.0, 2.0, 1.0), strict=True))
    assert next_of(SPACE, tried, times, 1) == [SPACE[4]]  # a=2 was best
    assert next_of(SPACE, tried, times, 9) == [SPACE[4], SPACE[3]]


def test_without_times_the_most_work_comes_first_and_nothing_is_claimed() -> None:
    tasks = [task("small", flops=1e3), task("many", calls=9, flops=1e6), task("big", flops=5e6)]
    planned = make_plan(tasks, None, None, ops=("big", "small"))
    assert [p.task.kernel for p in planned] == ["big", "small", "many"]
    assert [p.reason for p in planned] == [None, None, "not asked for"]
    assert all(p.total_s == 0 and p.expected_s is None and p.roof_share is None for p in planned)


def test_kernels_measured_one_by_one_make_a_profile() -> None:
    tasks = [task("conv", calls=2), task("conv", calls=1), task("broken")]
    trials = [
        trial(workload="conv workload", seconds=2e-3),
        failed(workload="broken workload"),
    ]
    found = profile_of(tasks, trials, key("tvmscope"))
    (kernel,) = found.kernels
    assert (kernel.name, kernel.calls) == ("conv", 3)
    assert found.end_to_end_s == kernel.total_s == pytest.approx(3 * 2e-3 * 1.01)
    planned = make_plan(tasks, found, Limits(flops_per_s=None, levels=()))
    assert [p.reason for p in planned] == [None, "did not run"]
