"""Source operators over several backends, and the difference between two of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support import samples
from support.profiles import kernel, profile, session
from support.rows import key
from tvmscope.analysis.alignment import Group, align
from tvmscope.analysis.waterfall import Waterfall, waterfall
from tvmscope.core.profile import Profile
from tvmscope.report.sections.charts import steps

OURS = profile(
    "tvmscope",
    kernel("fused_conv2d_relu", 6e-3, "conv1", "bn1", "relu1"),
    kernel("fused_conv2d", 3e-3, "conv2"),
    kernel("transpose", 1e-3, "conv2", kind="layout"),
)
THEIRS = profile(
    "onnxruntime",
    kernel("Conv", 4e-3, "conv1", "bn1"),
    kernel("Relu", 1e-3, "relu1"),
    kernel("Conv_2", 4e-3, "conv2"),
    host_s=1e-4,
)


def bars(fall: Waterfall | None, kind: str) -> list[tuple[str, float]]:
    assert fall is not None
    return [(b.label, pytest.approx(b.delta_s)) for b in fall.bars if b.kind == kind]


def test_kernels_that_share_an_operator_meet_in_one_group() -> None:
    first, second = align(session(OURS, THEIRS))
    assert first == Group(
        source_ops=("conv1", "bn1", "relu1"),
        times_s={OURS.key: 6e-3, THEIRS.key: pytest.approx(5e-3)},
    )
    assert second.source_ops == ("conv2",)
    assert second.times_s[OURS.key] == pytest.approx(4e-3)


def test_groups_join_through_a_third_backend() -> None:
    other = profile("torch", kernel("all", 1e-3, "relu1", "conv2"))
    (whole,) = align(session(OURS, THEIRS, other))
    assert set(whole.source_ops) == {"conv1", "bn1", "relu1", "conv2"}


def test_kernels_of_unknown_origin_are_a_group_without_operators() -> None:
    odd = profile("tvmscope", kernel("a", 3e-3, "x"), kernel("b", 1e-3))
    assert [g.source_ops for g in align(session(odd))] == [("x",), ()]


def test_targets_are_told_apart() -> None:
    gpu = replace(OURS, key=key("tvmscope", "cuda:sm_90"))
    found = align(session(OURS, gpu))[0].times_s
    assert {row.label for row in found} == {"tvmscope @ cpu:znver4", "tvmscope @ cuda:sm_90"}


def test_bars_add_up_to_the_difference() -> None:
    fall = waterfall(session(OURS, THEIRS))
    assert fall is not None
    assert (fall.ours, fall.theirs) == (key("tvmscope"), key("onnxruntime"))
    assert fall.theirs_s + sum(b.delta_s for b in fall.bars) == pytest.approx(fall.ours_s)
    assert bars(fall, "operator") == [("conv1 + 2", 1e-3), ("conv2", -1e-3)]
    assert bars(fall, "layout") == [("layout changes", 1e-3)]
    assert bars(fall, "host") == [("between kernels", 3e-4 - 1e-4)]
    assert bars(fall, "overhead") == [("profiler overhead", 0.9e-4 - 1e-4)]


def test_what_the_profiles_do_not_hold_is_unexplained() -> None:
    lost = replace(OURS, end_to_end_s=0.02, profiled_s=0.0201)
    closed, open_ = waterfall(session(OURS, THEIRS)), waterfall(session(lost, THEIRS))
    assert bars(open_, "unexplained")[0][1] == pytest.approx(
        bars(closed, "unexplained")[0][1].expected + 0.02 + 1e-4 - OURS.profiled_s
    )


def adds_up(planted: Profile, unexplained_s: float = 0.0) -> Profile:
    """The profile with a run that is its kernels, its host time and so much more."""
    whole = planted.total_s + (planted.host_s or 0.0) + unexplained_s
    return replace(planted, profiled_s=whole, end_to_end_s=whole - 1e-4)


@pytest.mark.parametrize(
    ("ours_s", "theirs_s", "bar_s"),
    [(0.0, 0.0, 0.0), (7e-4, 0.0, 7e-4), (0.0, 7e-4, -7e-4), (-2e-4, 0.0, -2e-4)],
)
def test_a_remainder_of_either_side_is_the_unexplained_bar(
    ours_s: float, theirs_s: float, bar_s: float
) -> None:
    closed = waterfall(session(adds_up(OURS), adds_up(THEIRS)))
    found = waterfall(session(adds_up(OURS, ours_s), adds_up(THEIRS, theirs_s)))
    assert bars(found, "unexplained") == [("unexplained", pytest.approx(bar_s, abs=1e-12))]
    assert found is not None
    assert found.theirs_s + sum(b.delta_s for b in found.bars) == pytest.approx(found.ours_s)
    for kind in ("operator", "host", "layout", "overhead"):
        assert bars(found, kind) == bars(closed, kind)
    assert steps(found)[-1].kind == "unexplained"
    assert steps(found)[-1].delta_s == pytest.approx(bar_s, abs=1e-12)


def test_host_time_that_could_not_be_measured_is_unexplained() -> None:
    whole = adds_up(THEIRS)
    found = waterfall(session(adds_up(OURS), replace(whole, host_s=None)))
    assert bars(found, "unexplained") == [("unexplained", pytest.approx(-1e-4))]


def test_a_kernel_of_unknown_origin_is_unexplained() -> None:
    odd = replace(
        OURS, kernels=(*OURS.kernels[:2], replace(OURS.kernels[2], source_ops=(), kind="compute"))
    )
    fall = waterfall(session(odd, THEIRS))
    assert bars(fall, "layout") == [("layout changes", 0.0)]
    before = bars(waterfall(session(OURS, THEIRS)), "unexplained")[0][1].expected
    assert bars(fall, "unexplained")[0][1] == pytest.approx(before + 1e-3)


def test_the_fastest_profiled_backend_is_the_other_side_and_the_rest_stands_beside() -> None:
    slow = profile("torch", kernel("conv", 50e-3, "conv1"))
    rows = [
        samples.result("torch.compile", 4e-3),
        samples.result("openvino", None, status="failed"),
    ]
    fall = waterfall(session(OURS, slow, THEIRS, rows=rows))
    assert fall is not None
    assert fall.theirs == key("onnxruntime")
    assert fall.beside == ((key("torch.compile"), pytest.approx(4e-3)),)


def test_our_fastest_row_is_explained() -> None:
    tuned = replace(OURS, key=key("tvmscope-tuned"), end_to_end_s=1e-3)
    fall = waterfall(session(OURS, tuned, THEIRS))
    assert fall is not None
    assert fall.ours == key("tvmscope-tuned")


def test_a_wrong_result_is_no_opponent() -> None:
    wrong = samples.result("onnxruntime", 9e-3, status="wrong", reason="differs")
    rows = (samples.result("tvmscope", 1e-2), wrong)
    assert waterfall(samples.session(*rows, profiles=(OURS, THEIRS), comparisons=())) is None


@pytest.mark.parametrize(
    "alone", [(OURS,), (THEIRS,), (), (OURS, replace(THEIRS, key=key("onnxruntime", "cuda:sm_90")))]
)
def test_no_waterfall_without_two_sides(alone) -> None:
    assert waterfall(session(*alone)) is None
