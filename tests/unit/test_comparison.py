"""Verdicts, and what refuses to be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.fakes import task
from tvmscope.benchmark.compare import compare_all
from tvmscope.core.comparison import Comparison, compare
from tvmscope.core.measurement import Measurement, Result
from tvmscope.errors import Incomparable
from tvmscope.storage.codec import decode, encode


def result(backend: str, level: float, *, status: Any = "ok", **kw: Any) -> Result:
    rng = np.random.default_rng(len(backend))
    values = level * np.exp(rng.normal(0, 0.001, (9, 5)))
    m = Measurement(rounds_s=tuple(tuple(r) for r in values.tolist()))
    return Result(task=task(backend, **kw), status=status, measurement=m)


def fixed(backend: str, ratios: list[float], **kw: Any) -> Result:
    m = Measurement(rounds_s=tuple((r,) for r in ratios))
    return Result(task=task(backend, **kw), status="ok", measurement=m)


ONE = [1.0] * 9


def test_faster_when_the_interval_excludes_one_and_the_effect_counts() -> None:
    found = compare(result("a", 1.0), result("b", 1.1))
    assert found.verdict == "faster"
    assert found.speedup == pytest.approx(1.1, rel=0.01)
    assert found.ci95 is not None
    assert found.ci95[0] > 1


def test_slower_is_the_mirror_image() -> None:
    a, b = result("a", 1.0), result("b", 1.1)
    found, mirrored = compare(b, a), compare(a, b)
    assert found.verdict == "slower"
    assert found.speedup == pytest.approx(1 / mirrored.speedup)


def test_undecided_when_interval_spans_one() -> None:
    found = compare(fixed("a", ONE), fixed("b", [1.3, 0.8] * 4 + [1.3]))
    assert found.verdict == "undecided"
    assert found.ci95 is not None
    assert found.ci95[0] < 1 < found.ci95[1]
    assert found.smallest_detectable is not None
    assert found.smallest_detectable > 0.1


@pytest.mark.parametrize(("ratio", "verdict"), [(1.019, "undecided"), (1.021, "faster")])
def test_undecided_below_two_percent_however_sure(ratio: float, verdict: str) -> None:
    found = compare(fixed("a", ONE), fixed("b", [ratio] * 9))
    assert found.verdict == verdict
    assert found.smallest_detectable == pytest.approx(0.02)


def test_undecided_with_a_single_round() -> None:
    found = compare(fixed("a", [1.0]), fixed("b", [2.0]))
    assert (found.verdict, found.ci95, found.smallest_detectable) == ("undecided", None, None)


@pytest.mark.parametrize("status", ["wrong", "failed", "unavailable", "interrupted"])
def test_a_result_that_is_not_ok_never_wins(status: str) -> None:
    bad = result("a", 0.1, status=status)
    with pytest.raises(Incomparable, match=status):
        compare(bad, result("b", 1.0))
    with pytest.raises(Incomparable, match=status):
        compare(result("b", 1.0), bad)
    assert compare_all([bad, result("b", 1.0)]) == ()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"digest": "e"}, "model"),
        ({"shapes": {"x": (2,)}}, "shapes"),
        ({"threads": 2}, "threads"),
        ({"target": "cuda"}, "target"),
        ({"precision": "float16"}, "precision"),
    ],
)
def test_different_things_are_incomparable(change: dict[str, Any], word: str) -> None:
    with pytest.raises(Incomparable, match=f"differ in {word}"):
        compare(result("a", 1.0), result("b", 1.0, **change))


def test_across_allows_targets_and_precisions_but_no_other_model() -> None:
    other = result("b", 2.0, target="cuda", threads=4, precision="float16")
    found = compare(result("a", 1.0), other, across=True)
    assert (found.key.target, found.against.label) == ("cpu", "b fp16 @ cuda")
    with pytest.raises(Incomparable):
        compare(result("a", 1.0), result("b", 1.0, digest="e"), across=True)


def test_comparison_survives_the_codec() -> None:
    for found in (
        compare(result("a", 1.0), result("b", 1.1)),
        compare(fixed("a", [1.0]), fixed("b", [2.0])),
    ):
        assert decode(Comparison, encode(found)) == found


def names(results: list[Result]) -> list[tuple[str, str, str]]:
    return [(c.key.name, c.against.name, c.key.target) for c in compare_all(results)]


def test_our_rows_meet_every_other_row_of_their_kind() -> None:
    rows = [
        result("torch", 1.0),
        result("tvmscope", 1.0),
        result("tvmscope-tuned", 1.0),
        result("torch", 1.0, target="cuda"),
        result("tvmscope", 1.0, target="cuda"),
        result("tvmscope", 1.0, precision="float16"),
    ]
    assert names(rows) == [
        ("tvmscope", "torch", "cpu"),
        ("tvmscope-tuned", "torch", "cpu"),
        ("tvmscope-tuned", "tvmscope", "cpu"),
        ("tvmscope", "torch", "cuda"),
    ]


def test_the_fastest_meets_the_others_where_none_is_ours() -> None:
    rows = [result("a", 2.0), result("b", 1.0), result("c", 3.0)]
    assert names(rows) == [("b", "a", "cpu"), ("b", "c", "cpu")]
