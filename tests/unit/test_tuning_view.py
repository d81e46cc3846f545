"""What a search says of the roofs while it runs: never more than they can mean."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support import trials
from support.rows import key
from tvmscope.analysis.roofline import Level, Limits
from tvmscope.core.profile import KernelTime, Profile
from tvmscope.core.tuning import Candidate, Lowering, TuningTask
from tvmscope.tuning.job.view import progress_line
from tvmscope.tuning.plan import make_plan
from tvmscope.tuning.search.state import State

LIMITS = Limits(flops_per_s=1e9, levels=(Level(1e9, None),))
UNTUNED_S = 8e-3
WINOGRAD = {"kernel": "winograd4"}


def line(best_s: float, params: dict[str, Any], *, flops: float = 1e6, size: float = 1.0) -> str:
    """The progress of a task whose untuned kernel takes 8 ms, once a candidate took `best_s`."""
    task = TuningTask(
        key=trials.CONV, rule="conv2d", kernel="conv2d", calls=1, flops=flops, bytes=size,
        lowerings=(
            Lowering(params={}, function="direct.json", flops=flops, bytes=size),
            Lowering(params=WINOGRAD, function="winograd.json", flops=flops / 4, bytes=size),
        ),
    )  # fmt: skip
    ran = KernelTime(name="conv2d", source_ops=(), calls=1, total_s=UNTUNED_S)
    profile = Profile(
        key=key("tvmscope"), kernels=(ran,), how="", runs=1,
        end_to_end_s=UNTUNED_S, profiled_s=UNTUNED_S,
    )  # fmt: skip
    (planned,) = make_plan([task], profile, LIMITS)
    state = State(planned)
    for seconds, candidate in ((UNTUNED_S, Candidate()), (best_s, Candidate(params=params))):
        state.add(trials.trial(seconds=seconds, candidate=candidate), 0.0)
    search: Any = SimpleNamespace(states={task.key: state}, model_s=1.0)
    return progress_line(search, state, 30.0)


def test_a_direct_kernel_has_a_share_of_its_roof() -> None:
    assert "GFLOP/s, 50% of roof |" in line(4e-3, {"unroll": 8}, flops=2e6)


def test_a_winograd_kernel_has_a_share_in_what_it_computes_itself() -> None:
    assert "GFLOP/s, 50% of roof (2.0x the direct roof) |" in line(2e-3, WINOGRAD, flops=4e6)


def test_a_kernel_whose_data_were_warm_is_said_to_read_the_caches() -> None:
    shown = line(2e-3, {"unroll": 8}, size=6e6)
    assert "GFLOP/s, its data from the caches |" in shown
    assert "of roof" not in shown


@pytest.mark.parametrize("flops", [6e6, 1e9])  # beyond it when tuned, and from the beginning
def test_a_roof_of_arithmetic_that_cannot_be_says_nothing(flops: float) -> None:
    shown = line(2e-3, {"unroll": 8}, flops=flops)
    assert "roof" not in shown
    assert "caches" not in shown


def test_a_hair_above_the_roof_is_at_the_roof() -> None:
    assert "100% of roof |" in line(2e-3, {"unroll": 8}, flops=2.05e6)
