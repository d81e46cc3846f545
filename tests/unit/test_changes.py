"""Two sessions: what changed, and what must not be compared."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from support import samples
from support.profiles import kernel, profile
from tvmscope.analysis.changes import Changes, changes, kernel_changes
from tvmscope.core.profile import Profile
from tvmscope.core.session import Session
from tvmscope.core.vision import Box, BoxPair, Label, Sighting
from tvmscope.errors import Incomparable, RegressionError
from tvmscope.report.terminal.changes import render
from tvmscope.workflow.comparing.compare import check_regression


def measured(ours_s: float, peer_s: float | None = 0.05, **more) -> Session:
    rows = [samples.result("tvmscope", ours_s)]
    if peer_s is not None:
        rows.append(samples.result("onnxruntime", peer_s))
    return samples.session(*rows, **more)


def ours(found: Changes):
    return next(row for row in found.rows if row.label == "tvmscope")


@pytest.mark.parametrize(
    "after_s, called, speedup",
    [(0.030, "faster", 4 / 3), (0.050, "slower", 0.8), (0.0402, "undecided", 1.0)],
)
def test_a_change_is_called(after_s: float, called: str, speedup: float) -> None:
    row = ours(changes(measured(0.040), measured(after_s)))
    assert row.verdict == called
    assert row.speedup == pytest.approx(speedup, rel=0.02)
    assert row.through == "onnxruntime"


def test_a_slower_machine_is_not_a_slower_program() -> None:
    row = ours(changes(measured(0.040, 0.05), measured(0.080, 0.10)))
    assert row.verdict == "undecided"
    assert row.speedup == pytest.approx(1, rel=0.02)


def test_without_a_common_backend_nothing_is_called() -> None:
    row = ours(changes(measured(0.040, None), measured(0.080, None)))
    assert row.verdict == "undecided"
    assert row.through is None


def test_a_backend_with_other_settings_is_no_common_one() -> None:
    after = measured(0.080)
    rows = tuple(replace(r, settings={"threads": "1"}) for r in after.results)
    assert ours(changes(measured(0.040), replace(after, results=rows))).through is None


@pytest.mark.parametrize(
    "field, value",
    [("cpu", "other"), ("gpu", "H200"), ("cores", 8), ("threads", 1), ("cpu_features", ("sse2",))],
)
def test_another_machine_is_refused(field: str, value: object) -> None:
    there = measured(0.040)
    there = replace(there, environment=replace(there.environment, **{field: value}))
    with pytest.raises(Incomparable, match="differ in"):
        changes(measured(0.040), there)


def test_another_model_is_refused() -> None:
    other = measured(0.040, model=replace(samples.MODEL, name="another", digest="e" * 64))
    with pytest.raises(Incomparable, match=r"differ in model: .* and another \(eeeeeeeeeeee\)"):
        changes(measured(0.040), other)


def test_a_wrong_result_is_no_row() -> None:
    bad = samples.session(samples.result("tvmscope", 0.04, status="wrong", reason="differs"))
    with pytest.raises(Incomparable, match="no row"):
        changes(bad, bad)


def with_kernels(conv_s: float, name: str = "fused_conv2d", peer_s: float = 0.05) -> Session:
    kernels = (kernel(name, conv_s, "conv1", "relu1"), kernel("fused_dense", 0.01, "fc"))
    return measured(0.04, peer_s, profiles=(profile("tvmscope", *kernels),))


def test_operators_and_kernels_that_changed_are_named() -> None:
    found = changes(with_kernels(0.03), with_kernels(0.02, "fused_winograd"))
    called = {p.label: p.verdict for p in (*found.operators, *found.kernels)}
    assert called == {
        "conv1 + 1": "faster", "fc": "undecided", "fused_dense": "undecided",
        "fused_conv2d": "faster", "fused_winograd": "slower",
    }  # fmt: skip


def test_kernels_are_set_to_the_same_speed_of_the_machine() -> None:
    twice = with_kernels(0.06, peer_s=0.10)
    kernels = tuple(replace(k, total_s=0.02) if k.name == "fused_dense" else k
                    for k in twice.profiles[0].kernels)  # fmt: skip
    twice = replace(twice, profiles=(replace(twice.profiles[0], kernels=kernels),))
    found = changes(with_kernels(0.03), twice)
    assert {p.verdict for p in found.kernels} == {"undecided"}


def test_kernels_that_left_and_entered_the_longest_ones() -> None:
    def of(*names: str) -> Profile:
        return profile("tvmscope", *(kernel(n, 0.001 * (30 - i)) for i, n in enumerate(names)))

    shared = [f"k{i}" for i in range(19)]
    found = kernel_changes(of("slow", *shared, "small"), of(*shared, "new", "small"))
    assert (found.left, found.entered) == (("slow",), ("new",))


def test_a_sure_loss_over_the_limit_fails() -> None:
    slower = changes(measured(0.040), measured(0.044))
    with pytest.raises(RegressionError, match="tvmscope @ cpu:znver4 by 10") as failed:
        check_regression(slower, 0.05)
    assert failed.value.exit_code == 4
    check_regression(slower, 0.15)
    check_regression(changes(measured(0.040, None), measured(0.080, None)), 0.05)


def test_a_peer_that_became_slower_is_no_regression_of_ours() -> None:
    third = samples.result("torch", 0.09)
    before, after = measured(0.040, 0.05), measured(0.040, 0.08)
    found = changes(
        replace(before, results=(*before.results, third)),
        replace(after, results=(*after.results, third)),
    )
    assert "slower" in [row.verdict for row in found.rows]
    check_regression(found, 0.0)


def test_the_table_shows_verdicts_and_survives_hostile_names() -> None:
    evil = samples.HOSTILE * 20
    before, after = with_kernels(0.03), with_kernels(0.02)
    found = changes(before, after)
    box = Box(index=0, name=evil, score=0.9, corners=(0, 0, 1, 1))
    label = Label(index=0, name=evil, score=0.9)
    hostile = replace(
        found,
        left=(evil,),
        warnings=(evil,),
        sightings=(
            Sighting(picture=evil, boxes=(BoxPair(before=box, after=None),)),
            Sighting(picture=evil, labels_before=(label,)),
            Sighting(picture=evil, failure=evil),
        ),
        operators=tuple(replace(p, label=evil) for p in found.operators),
        rows=tuple(replace(r, label=evil, through=evil) for r in found.rows),
    )
    stream = StringIO()
    console = Console(file=stream, width=160, color_system=None)
    console.print(render(found))
    assert "faster" in stream.getvalue()
    assert "no clear change" in stream.getvalue()
    console.print(render(hostile))
    assert "\x1b" not in stream.getvalue()


def test_mean_median_and_standard_deviation_of_both_sides_are_shown() -> None:
    found = changes(measured(0.040), measured(0.030))
    before, after = ours(found).spreads or ()
    assert before.median_s == pytest.approx(0.040, rel=0.02)
    assert after.mean_s == pytest.approx(0.030, rel=0.05)
    assert before.samples > 1
    stream = StringIO()
    Console(file=stream, width=160).print(render(found))
    assert "mean" in stream.getvalue()
    assert "std" in stream.getvalue()
