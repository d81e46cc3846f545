"""Verification where a tolerance is not enough: the model's noise, NaN and infinities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvmscope.benchmark import differences
from tvmscope.benchmark.noise import FACTOR
from tvmscope.benchmark.verify import verify
from tvmscope.core.measurement import Accuracy
from tvmscope.core.prepared.sensitivity import MASK, MAX, RMS, RUNS, TRUTH
from tvmscope.storage.files import write_npz

Arrays = dict[str, Any]
DRAWS = np.random.default_rng(0)
REFERENCE = {"y": DRAWS.standard_normal((40, 50)).astype(np.float32)}
SCALE = float(np.abs(REFERENCE["y"]).max())


def check(
    folder: Path, actual: Arrays, expected: Arrays, noise: Arrays | None = None, rtol: float = 1e-4
) -> Accuracy:
    for name, arrays in (("a", actual), ("b", expected), ("noise", noise or {})):
        write_npz(folder / f"{name}.npz", arrays)
    file = None if noise is None else folder / "noise.npz"
    return verify(folder / "a.npz", folder / "b.npz", rtol, "torch", noise=lambda: file)


def off(by: float) -> Arrays:
    return {"y": REFERENCE["y"] + by * DRAWS.uniform(-1, 1, (40, 50)).astype(np.float32)}


def estimate(top: float) -> Arrays:
    return {f"{MAX}y": np.array(top), f"{RMS}y": np.array(top / 2)}


def test_within_the_noise_is_apart_from_pass_and_wrong(tmp_path: Path) -> None:
    found = check(tmp_path, off(2e-3), REFERENCE, estimate(1e-3))
    assert (found.passed, found.within_noise, found.detail) == (True, True, None)
    assert found.noise == pytest.approx(1e-3 / SCALE)
    assert found.error is not None
    assert found.error > found.tolerance
    plain = check(tmp_path, off(1e-6), REFERENCE, estimate(1e-3))
    assert (plain.passed, plain.within_noise, plain.noise) == (True, False, None)


def test_an_error_over_the_noise_is_wrong(tmp_path: Path) -> None:
    for noise in (None, estimate(1e-3), {}):
        found = check(tmp_path, off(3 * FACTOR * 1e-3), REFERENCE, noise)
        assert (found.passed, found.within_noise, found.noise) == (False, False, None)
        assert "over the tolerance" in str(found.detail)


def test_noise_as_large_as_the_outputs_excuses_nothing(tmp_path: Path) -> None:
    assert not check(tmp_path, off(2e-3), REFERENCE, estimate(0.1 * SCALE)).passed


def test_a_shift_of_all_values_is_wrong_where_only_few_are_noisy(tmp_path: Path) -> None:
    shifted = {"y": REFERENCE["y"] + np.float32(5e-3)}
    spiky = {f"{MAX}y": np.array(1e-3), f"{RMS}y": np.array(1e-5)}
    assert not check(tmp_path, shifted, REFERENCE, spiky).passed


def test_the_distance_counts_from_the_truth(tmp_path: Path) -> None:
    truth = {"y": REFERENCE["y"].astype(np.float64) + 3e-3}
    noise = {**estimate(1e-3), f"{TRUTH}y": truth["y"]}
    assert check(tmp_path, {"y": truth["y"] + 3e-3}, REFERENCE, noise).within_noise
    assert not check(tmp_path, {"y": truth["y"] - 16e-3}, REFERENCE, noise).passed


def test_noise_is_asked_only_where_the_tolerance_fails(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", REFERENCE)

    def never() -> Path:
        raise AssertionError("not needed")

    assert verify(tmp_path / "a.npz", tmp_path / "a.npz", 1e-4, "torch", noise=never).passed


def test_indices_may_differ_only_where_rounding_decides(tmp_path: Path) -> None:
    expected, flipped = {"i": np.array([3, 5, 7])}, {"i": np.array([3, 6, 7])}
    close = {f"{MASK}i": np.array([0, 1, 0], dtype=np.uint8)}
    elsewhere = {f"{MASK}i": np.array([1, 0, 1], dtype=np.uint8)}
    assert check(tmp_path, flipped, expected, close).within_noise
    assert not check(tmp_path, flipped, expected, elsewhere).passed
    assert not check(tmp_path, flipped, expected).passed


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("actual", "passes"),
    [
        ([1.0, NAN, INF, -INF], True),
        ([1.0, NAN, INF, INF], False),
        ([1.0, 0.0, INF, -INF], False),
        ([NAN, NAN, INF, -INF], False),
        ([1.0, NAN, 3e38, -INF], False),
        ([2.0, NAN, INF, -INF], False),
    ],
)
def test_nan_and_infinity_stand_for_themselves(
    tmp_path: Path, actual: list[float], passes: bool
) -> None:
    expected = {"y": np.array([1.0, NAN, INF, -INF], dtype=np.float32)}
    found = check(tmp_path, {"y": np.array(actual, dtype=np.float32)}, expected)
    assert found.passed is passes


def test_a_reference_without_any_number_proves_nothing(tmp_path: Path) -> None:
    nothing = {"y": np.full(3, np.nan, dtype=np.float32)}
    assert not check(tmp_path, nothing, nothing).passed


def test_pieces_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = off(0.1)["y"], REFERENCE["y"]
    whole = differences.difference(a, b)
    monkeypatch.setattr(differences, "PIECE", 7)
    pieces = differences.difference(a, b)
    assert (pieces.max_abs, pieces.scale, pieces.finite) == (whole.max_abs, whole.scale, b.size)
    assert pieces.rms == pytest.approx(float(np.sqrt(np.mean((a.astype(float) - b) ** 2))))
    assert pieces.cosine == pytest.approx(whole.cosine)


def exchanged(values: np.ndarray, first: int, second: int) -> np.ndarray:
    rows = np.arange(len(values))
    rows[[first, second]] = second, first
    return values[rows]


def test_rows_that_rounding_exchanges_may_be_exchanged_but_no_others(tmp_path: Path) -> None:
    boxes = DRAWS.uniform(0, 300, (100, 4)).astype(np.float32)
    noise = [boxes + DRAWS.uniform(-1e-4, 1e-4, boxes.shape).astype(np.float32) for _ in range(3)]
    runs = np.stack([noise[0], exchanged(noise[1], 40, 41), noise[2]])
    estimated = {
        f"{MAX}y": np.abs(runs - boxes).max(),
        f"{RMS}y": np.sqrt(np.square(runs - boxes).mean()),
        f"{RUNS}y": runs,
    }
    same = {"y": boxes}
    found = check(tmp_path, {"y": exchanged(boxes, 40, 41)}, same, estimated)
    assert found.within_noise
    wrong = exchanged(boxes, 40, 41)
    wrong[40, 2] += 1.0
    for other in (exchanged(boxes, 40, 42), exchanged(boxes, 60, 61), wrong):
        assert not check(tmp_path, {"y": other}, same, estimated).passed


def test_where_rounding_exchanges_most_rows_it_excuses_nothing(tmp_path: Path) -> None:
    boxes = DRAWS.uniform(0, 300, (100, 4)).astype(np.float32)
    runs = np.stack([boxes, boxes[::-1]])
    estimated = {
        f"{MAX}y": np.abs(runs - boxes).max(),
        f"{RMS}y": np.sqrt(np.square(runs - boxes).mean()),
        f"{RUNS}y": runs,
    }
    assert not check(tmp_path, {"y": boxes[::-1]}, {"y": boxes}, estimated).passed
