"""Checks a backend's outputs against the reference framework's."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tvmscope.benchmark.differences import Array, Difference, difference
from tvmscope.benchmark.noise import Noise
from tvmscope.core.measurement import Accuracy
from tvmscope.errors import RunError
from tvmscope.messages import Text, clauses, msg
from tvmscope.storage.files import map_npz

FLOAT64 = "float64"
"""The name of a reference that the framework computed in float64."""


@dataclass(frozen=True)
class _Judged:
    """One output beside its reference; numbers are None where the two cannot be subtracted."""

    max_abs: float | None = None
    error: float | None = None
    cosine: float | None = None
    problem: Text | None = None


def verify(
    outputs: Path,
    reference: Path,
    tolerance: float,
    reference_name: str,
    *,
    atol: float = 0.0,
    noise: Callable[[], Path | None] = lambda: None,
) -> Accuracy:
    """Compare two npz files output by output; the worst output counts.

    `noise` is asked where an output is over the tolerance: it gives the file with the model's own
    rounding noise (see `benchmark.noise`), or None where that is not known.
    """
    actual, expected = _read(outputs), _read(reference)
    if not expected:
        raise RunError(msg("{file} holds no outputs: nothing to verify against", file=reference))
    judged = {
        name: _judge(actual.get(name), array, tolerance, atol) for name, array in expected.items()
    }
    problems = {name: each.problem for name, each in judged.items() if each.problem}
    level = _noise_level(problems, actual, expected, noise) if problems else None
    known = [each for each in judged.values() if each.error is not None]
    whole = len(known) == len(judged)  # a worst case over a part would look too good
    cosines = [each.cosine for each in known if each.cosine is not None]
    return Accuracy(
        reference=reference_name,
        passed=not problems or level is not None,
        max_abs=max(each.max_abs or 0.0 for each in known) if whole else None,
        error=max(each.error or 0.0 for each in known) if whole else None,
        cosine=min(cosines, default=None) if whole else None,
        tolerance=tolerance,
        noise=level,
        detail=None
        if level is not None
        else clauses(
            [
                msg("output '{name}': {problem}", name=name, problem=problem)
                for name, problem in problems.items()
            ]
        )
        or None,
    )


def _noise_level(
    problems: Mapping[str, Text],
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    noise: Callable[[], Path | None],
) -> float | None:
    """Return the model's noise if it explains all problems; otherwise None."""
    comparable = all(
        name in actual and actual[name].shape == expected[name].shape for name in problems
    )
    path = noise() if comparable else None
    if path is None:
        return None
    estimate = Noise.read(path)
    if not all(estimate.covers(name, actual[name], expected[name]) for name in problems):
        return None
    return max(estimate.of(name, expected[name]) for name in problems)


def mismatch(actual: Array, expected: Array, tolerance: float, *, atol: float = 0.0) -> Text | None:
    """Describe how a value inside a model differs from the reference; None if it does not.

    Unlike in outputs, zeros are proof enough here, and masks are full of infinities: values that
    are not finite must be equal in both.
    """
    if actual.shape != expected.shape or expected.dtype.kind not in "fc":
        return _judge(actual, expected, tolerance, atol).problem
    finite = np.isfinite(expected)
    if not np.array_equal(actual[~finite], expected[~finite], equal_nan=True):
        return msg("the reference has NaN or infinity where this output has other values")
    odd = int(np.count_nonzero(finite & ~np.isfinite(actual)))
    if odd:
        return msg(
            "{odd} of {size} values are NaN or infinite in this output only",
            odd=odd,
            size=expected.size,
        )
    a, b = (x[finite].astype(np.float64) for x in (actual, expected))
    scale = float(np.abs(b).max(initial=0.0)) or 1.0
    error = float(np.abs(a - b).max(initial=0.0)) / scale
    if error * scale <= tolerance * scale + atol:
        return None
    return _over(error, tolerance)


def _judge(actual: Array | None, expected: Array, tolerance: float, atol: float) -> _Judged:
    if actual is None:
        return _Judged(problem=msg("missing"))
    if actual.shape != expected.shape:
        shapes = {"shape": str(actual.shape), "wanted": str(expected.shape)}
        return _Judged(problem=msg("shape {shape} instead of {wanted}", **shapes))
    if expected.size == 0:
        return _Judged(max_abs=0.0, error=0.0)
    if expected.dtype.kind in "biu":
        return _exact(actual, expected)
    found = difference(actual, expected)
    if problem := _infinite(found, expected.size):
        return _Judged(problem=problem)
    if found.scale == 0.0:
        return _Judged(problem=msg("the reference is all zeros: matching it proves nothing"))
    passed = found.max_abs <= tolerance * found.scale + atol
    problem = None if passed else _over(found.error, tolerance)
    return _Judged(found.max_abs, found.error, found.cosine, problem)


def _infinite(found: Difference, size: int) -> Text | None:
    """Report non-finite values, of the reference first, then the result; equal ones are right."""
    if found.odd_reference or not found.finite:
        return msg(
            "{bad} of {size} values of the reference are NaN or infinite",
            bad=found.odd_reference or size,
            size=size,
        )
    if found.odd_result:
        return msg(
            "{bad} of {size} values of the result are NaN or infinite",
            bad=found.odd_result,
            size=size,
        )
    return None


def _over(error: float, tolerance: float) -> Text:
    return msg(
        "max|a-b| / max|ref| is {error:.2e}, over the tolerance {tolerance:.0e}",
        error=error,
        tolerance=tolerance,
    )


def _exact(actual: Array, expected: Array) -> _Judged:
    """Integers and booleans are indices, labels or masks: close is not good enough."""
    wrong = int((actual != expected).sum())
    gap = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    if not np.isfinite(gap).all():
        return _Judged(problem=msg("has NaN or infinite values where integers are expected"))
    scale = max(1.0, float(np.abs(expected.astype(np.float64)).max()))
    problem = None
    if wrong:
        problem = msg("{wrong} of {size} integers differ", wrong=wrong, size=expected.size)
    return _Judged(float(gap.max()), float(gap.max()) / scale, None, problem)


def _read(path: Path) -> dict[str, Array]:
    try:
        return map_npz(path)
    except (OSError, ValueError, zipfile.BadZipFile) as e:
        raise RunError(
            msg("{path} cannot be read as saved outputs: {reason}", path=path, reason=str(e))
        ) from e
