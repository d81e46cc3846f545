"""Outputs against the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvmscope.benchmark.verify import verify
from tvmscope.core.measurement import Accuracy
from tvmscope.errors import RunError

REFERENCE = {"y": np.array([[1.0, -2.0], [0.5, 4.0]], dtype=np.float32)}


def check(tmp_path: Path, actual: dict[str, Any], expected: dict[str, Any]) -> Accuracy:
    np.savez(tmp_path / "a.npz", **actual)
    np.savez(tmp_path / "b.npz", **expected)
    return verify(tmp_path / "a.npz", tmp_path / "b.npz", 1e-3, "torch")


def test_equal_outputs_pass(tmp_path: Path) -> None:
    found = check(tmp_path, REFERENCE, REFERENCE)
    assert (found.passed, found.error, found.max_abs) == (True, 0.0, 0.0)
    assert found.cosine == pytest.approx(1.0)
    assert (found.reference, found.detail) == ("torch", None)


def test_error_is_relative_to_the_largest_reference_value(tmp_path: Path) -> None:
    found = check(tmp_path, {"y": REFERENCE["y"] + 0.002}, REFERENCE)
    assert found.passed
    assert found.error == pytest.approx(0.0005, rel=1e-3)
    assert found.max_abs == pytest.approx(0.002, rel=1e-3)


def test_over_the_tolerance_fails_and_names_the_output(tmp_path: Path) -> None:
    found = check(tmp_path, {"y": REFERENCE["y"] + 0.01}, REFERENCE)
    assert not found.passed
    assert found.detail is not None
    assert "output 'y'" in found.detail
    assert "1e-03" in found.detail


def test_the_worst_output_counts(tmp_path: Path) -> None:
    expected = {"a": np.ones(3), "b": np.ones(3)}
    found = check(tmp_path, {"a": np.ones(3), "b": -np.ones(3)}, expected)
    assert (found.passed, found.error, found.cosine) == (False, 2.0, pytest.approx(-1.0))


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        ({"z": np.ones(2)}, REFERENCE, "missing"),
        ({"y": np.ones(4)}, REFERENCE, "shape"),
        ({"y": REFERENCE["y"] * np.nan}, REFERENCE, "4 of 4 values of the result"),
        ({"y": REFERENCE["y"] * np.inf}, REFERENCE, "infinite"),
        (REFERENCE, {"y": REFERENCE["y"] * np.nan}, "values of the reference are"),
        ({"y": np.zeros(3)}, {"y": np.zeros(3)}, "all zeros"),
        ({"y": np.array([1, 2])}, {"y": np.array([1, 3])}, "1 of 2 integers differ"),
        ({"y": np.array([np.nan, 1])}, {"y": np.array([1, 3])}, "NaN"),
        ({"y": np.array([True])}, {"y": np.array([False])}, "integers differ"),
    ],
)
def test_failures_say_why(
    tmp_path: Path, actual: dict[str, Any], expected: dict[str, Any], words: str
) -> None:
    found = check(tmp_path, actual, expected)
    assert not found.passed
    assert found.detail is not None
    assert words in found.detail


def test_no_number_where_one_output_cannot_be_compared(tmp_path: Path) -> None:
    found = check(tmp_path, {"a": np.ones(2)}, {"a": np.ones(2), "b": np.ones(2)})
    assert (found.passed, found.error, found.max_abs, found.cosine) == (False, None, None, None)


def test_equal_integers_and_empty_outputs_pass(tmp_path: Path) -> None:
    outputs = {"labels": np.array([0, 0, 7]), "boxes": np.zeros((0, 4), dtype=np.float32)}
    assert check(tmp_path, outputs, outputs).passed


def test_half_precision_is_compared_without_overflow(tmp_path: Path) -> None:
    outputs = {"y": np.full(1000, 6e4, dtype=np.float16)}
    found = check(tmp_path, outputs, outputs)
    assert found.passed
    assert found.cosine == pytest.approx(1.0)


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 truncated")
    np.savez(tmp_path / "b.npz", **REFERENCE)
    with pytest.raises(RunError, match="cannot be read"):
        verify(tmp_path / "a.npz", tmp_path / "b.npz", 1e-3, "torch")
