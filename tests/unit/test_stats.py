"""Statistics of raw timings."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tvmscope.core import stats
from tvmscope.core.measurement import Measurement


def measurement(values: np.ndarray, loops: int = 1) -> Measurement:
    return Measurement(rounds_s=tuple(tuple(r) for r in values.tolist()), loops=loops)


def noisy(rounds: int, per_round: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    level = rng.normal(0, 0.02, (rounds, 1))
    return np.exp(level + rng.normal(0, 0.01, (rounds, per_round)))


def test_summary_has_the_documented_keys_and_values() -> None:
    values = noisy(9, 10)
    found = stats.summary(measurement(values))
    assert found["median_s"] == np.median(values)
    assert found["mean_s"] == pytest.approx(values.mean())
    assert found["std_s"] == pytest.approx(values.std(ddof=1))
    low, high = found["ci95_s"]
    assert low < found["median_s"] < high
    assert found["samples"] == 90
    assert found["values_s"] == values.ravel().tolist()


def test_percentiles_only_from_enough_single_runs() -> None:
    assert stats.summary(measurement(noisy(9, 7)))["p90_s"] is None
    assert stats.summary(measurement(noisy(8, 8)))["p90_s"] is not None
    assert stats.summary(measurement(noisy(8, 8)))["p99_s"] is None
    assert stats.summary(measurement(noisy(2, 331)))["p99_s"] is not None
    assert stats.summary(measurement(noisy(2, 331), loops=2))["p90_s"] is None


def test_one_value_has_no_interval_and_no_deviation() -> None:
    found = stats.summary(Measurement(rounds_s=((0.5,),)))
    assert (found["median_s"], found["ci95_s"], found["std_s"]) == (0.5, None, None)


def test_bootstrap_medians_equal_those_of_pooled_draws() -> None:
    groups = [np.array(g) for g in ([1.0, 5.0], [2.0, 2.0, 9.0], [4.0])]
    found = stats._resampled_medians(groups)
    draws = np.random.default_rng(stats._SEED).multinomial(3, [1 / 3] * 3, size=stats._RESAMPLES)
    for draw, median in list(zip(draws, found, strict=True))[:200]:
        pooled = np.concatenate([np.tile(g, n) for g, n in zip(groups, draw, strict=True)])
        assert median == np.median(pooled)


def test_interval_of_the_median_respects_rounds() -> None:
    values = noisy(9, 200)
    grouped = stats.median_interval(values.tolist())
    alone = stats.median_interval([values.ravel().tolist()])
    assert grouped is not None
    assert alone is not None
    assert grouped[1] - grouped[0] > 3 * (alone[1] - alone[0])


@pytest.mark.slow
def test_summary_of_many_values_is_quick() -> None:
    m = measurement(noisy(40, 256))
    start = time.perf_counter()
    stats.summary(m)
    assert time.perf_counter() - start < 0.5


def test_spread_and_variation() -> None:
    m = Measurement(rounds_s=((1.0, 2.0, 3.0, 4.0, 5.0),))
    assert stats.spread(m) == pytest.approx(2 / 3)
    assert stats.cov(m) == pytest.approx(np.std([1, 2, 3, 4, 5], ddof=1) / 3)
    assert stats.cov(Measurement(rounds_s=((1.0,),))) is None


def test_signed_rank_cuts_match_published_tables() -> None:
    # Critical values of T for a two-sided test at 5 %; the interval uses the next Walsh average.
    table = {6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 15: 25, 20: 52, 25: 89}
    for n, critical in table.items():
        assert stats._signed_rank_cut(n) == critical + 1


def test_wilcoxon_interval_matches_a_worked_case() -> None:
    found = stats.ratio_interval([(x,) for x in (1.1, 1.2, 1.3, 1.1, 1.2, 1.3)], [(1.0,)] * 6)
    assert (found.lo, found.hi) == (pytest.approx(1.1), pytest.approx(1.3))
    assert found.ratio == pytest.approx(1.2, rel=0.01)


@pytest.mark.parametrize("n", [3, 5, 6, 9, 20])
def test_intervals_cover_the_truth_about_95_percent(n: int) -> None:
    rng = np.random.default_rng(n)
    trials, truth = 2000, 1.03
    logs = np.log(truth) + rng.laplace(0, 0.02, (trials, n))
    hits = 0
    for row in np.exp(logs):
        found = stats.ratio_interval(row[:, None].tolist(), [(1.0,)] * n)
        assert found.lo is not None
        assert found.hi is not None
        hits += found.lo <= truth <= found.hi
    assert 0.935 <= hits / trials <= 0.985


def test_pairing_cancels_what_both_sides_share() -> None:
    rng = np.random.default_rng(1)
    drift = np.exp(rng.normal(0, 0.3, 12))
    a = [(1.1 * d,) for d in drift]
    b = [(1.0 * d,) for d in drift]
    found = stats.ratio_interval(a, b)
    assert found.lo == pytest.approx(1.1)
    assert found.hi == pytest.approx(1.1)


def test_different_numbers_of_rounds_pair_on_the_first_common_ones() -> None:
    found = stats.ratio_interval([(2.0,)] * 3, [(1.0,)] * 9)
    assert found == (pytest.approx(2.0), pytest.approx(2.0), pytest.approx(2.0), 0.0)


def test_one_round_gives_a_ratio_and_no_interval() -> None:
    assert stats.ratio_interval([(3.0,)], [(2.0,)]) == (pytest.approx(1.5), None, None, None)


def test_no_common_round_is_an_error() -> None:
    with pytest.raises(ValueError, match="no common round"):
        stats.ratio_interval([], [(1.0,)])


def test_smallest_detectable_shrinks_with_rounds() -> None:
    values = noisy(36, 5)
    few = stats.ratio_interval(values[:9].tolist(), [(1.0,)] * 9)
    many = stats.ratio_interval(values.tolist(), [(1.0,)] * 36)
    assert few.smallest_detectable is not None
    assert many.smallest_detectable is not None
    assert many.smallest_detectable < few.smallest_detectable


def test_widths_of_a_quotient_add_in_quadrature() -> None:
    wide = stats.RatioInterval(2.0, 2.0 / 1.3, 2.0 * 1.3, 0.3)
    narrow = stats.RatioInterval(1.0, 1 / 1.1, 1.1, 0.1)
    found = stats.ratio_quotient(wide, narrow)
    half = float(np.hypot(np.log(1.3), np.log(1.1)))
    assert found == pytest.approx((2.0, 2.0 * np.exp(-half), 2.0 * np.exp(half), np.expm1(half)))


def test_a_quotient_without_limits_has_none() -> None:
    lone = stats.RatioInterval(2.0, None, None, None)
    found = stats.ratio_quotient(stats.RatioInterval(1.0, 0.9, 1.1, 0.1), lone)
    assert found == (0.5, None, None, None)


def test_geometric_mean() -> None:
    assert stats.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    with pytest.raises(ValueError, match="no values"):
        stats.geometric_mean([])


def test_settled_needs_four_blocks_without_drift() -> None:
    assert not stats.settled([1.0, 1.0, 1.0])
    assert stats.settled([5.0, 1.0, 1.0, 1.0, 1.01])
    assert not stats.settled([2.0, 1.8, 1.6, 1.4, 1.2])
    assert not stats.settled([2.0, 1.0, 1.0, 1.0])


def test_settled_gives_up_on_noise_that_is_no_trend() -> None:
    noise = [1.0, 1.2, 1.0, 1.3, 1.0, 1.2, 1.3, 1.2]
    assert not stats.settled(noise[:7])
    assert stats.settled(noise)


def test_rounds_that_resemble_their_neighbours_widen_the_interval() -> None:
    rng = np.random.default_rng(3)
    trials, n, hits = 600, 20, 0
    noise = rng.normal(0, 0.02, (trials, n + 20))
    for i in range(1, n + 20):
        noise[:, i] += 0.5 * noise[:, i - 1]
    for row in np.exp(noise[:, 20:]):
        found = stats.ratio_interval(row[:, None].tolist(), [(1.0,)] * n)
        assert found.lo is not None
        assert found.hi is not None
        hits += found.lo <= 1 <= found.hi
    assert hits / trials > 0.85  # 75 % if they were taken as independent
