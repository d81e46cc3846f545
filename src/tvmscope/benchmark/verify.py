"""Checks a backend's outputs against the reference framework's."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvmscope.core.measurement import Accuracy
from tvmscope.errors import RunError
from tvmscope.messages import Text, clauses, msg

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class _Difference:
    """One output beside its reference; numbers are None if the two cannot be subtracted."""

    max_abs: float | None = None
    error: float | None = None
    cosine: float | None = None
    problem: Text | None = None


def verify(
    outputs: Path, reference: Path, tolerance: float, reference_name: str, *, atol: float = 0.0
) -> Accuracy:
    """Compare two npz files output by output; the worst output counts."""
    actual, expected = _read(outputs), _read(reference)
    if not expected:
        raise RunError(msg("{file} holds no outputs: nothing to verify against", file=reference))
    differences = {
        name: _difference(actual.get(name), array, tolerance, atol)
        for name, array in expected.items()
    }
    problems = [
        msg("output '{name}': {problem}", name=name, problem=d.problem)
        for name, d in differences.items()
        if d.problem
    ]
    every = differences.values()
    known = [d for d in every if d.error is not None]
    whole = len(known) == len(differences)  # a worst case over a part would look too good
    return Accuracy(
        reference=reference_name,
        passed=not problems,
        max_abs=max(d.max_abs or 0.0 for d in known) if whole else None,
        error=max(d.error or 0.0 for d in known) if whole else None,
        cosine=min((d.cosine for d in known if d.cosine is not None), default=None)
        if whole
        else None,
        tolerance=tolerance,
        detail=clauses(problems) or None,
    )


def mismatch(actual: Array, expected: Array, tolerance: float, *, atol: float = 0.0) -> Text | None:
    """Describe how a value inside a model differs from the reference; None if it does not.

    Unlike in outputs, zeros are proof enough here, and masks are full of infinities: values that
    are not finite must be equal in both.
    """
    if actual.shape != expected.shape or expected.dtype.kind not in "fc":
        return _difference(actual, expected, tolerance, atol).problem
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


def _difference(
    actual: Array | None, expected: Array, tolerance: float, atol: float
) -> _Difference:
    if actual is None:
        return _Difference(problem=msg("missing"))
    if actual.shape != expected.shape:
        shapes = {"shape": str(actual.shape), "wanted": str(expected.shape)}
        return _Difference(problem=msg("shape {shape} instead of {wanted}", **shapes))
    if expected.size == 0:
        return _Difference(max_abs=0.0, error=0.0)
    if expected.dtype.kind in "biu":
        return _exact(actual, expected)
    a, b = actual.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    if problem := _infinite(a, b):
        return _Difference(problem=problem)
    scale = float(np.abs(b).max())
    if scale == 0.0:
        return _Difference(problem=msg("the reference is all zeros: matching it proves nothing"))
    max_abs = float(np.abs(a - b).max())
    error = max_abs / scale
    passed = max_abs <= tolerance * scale + atol
    problem = None if passed else _over(error, tolerance)
    return _Difference(max_abs, error, _cosine(a, b), problem)


def _infinite(a: Array, b: Array) -> Text | None:
    """Count values that are not finite, first in the reference `b`, then in the result."""
    in_result, in_reference = (int(x.size - np.isfinite(x).sum()) for x in (a, b))
    if in_reference:
        return msg(
            "{bad} of {size} values of the reference are NaN or infinite",
            bad=in_reference,
            size=b.size,
        )
    if in_result:
        return msg(
            "{bad} of {size} values of the result are NaN or infinite", bad=in_result, size=a.size
        )
    return None


def _over(error: float, tolerance: float) -> Text:
    return msg(
        "max|a-b| / max|ref| is {error:.2e}, over the tolerance {tolerance:.0e}",
        error=error,
        tolerance=tolerance,
    )


def _exact(actual: Array, expected: Array) -> _Difference:
    """Compare integers and booleans exactly: they are indices, labels or masks."""
    wrong = int((actual != expected).sum())
    gap = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    if not np.isfinite(gap).all():
        return _Difference(problem=msg("has NaN or infinite values where integers are expected"))
    scale = max(1.0, float(np.abs(expected.astype(np.float64)).max()))
    problem = None
    if wrong:
        problem = msg("{wrong} of {size} integers differ", wrong=wrong, size=expected.size)
    return _Difference(float(gap.max()), float(gap.max()) / scale, None, problem)


def _cosine(a: Array, b: Array) -> float:
    """Scale by the largest magnitudes first, so that no square overflows; 0 for a zero vector."""
    top = float(np.abs(a).max())
    if top == 0.0:
        return 0.0
    x, y = a / top, b / np.abs(b).max()
    return float(np.clip(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)), -1.0, 1.0))


def _read(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as e:
        raise RunError(
            msg("{path} cannot be read as saved outputs: {reason}", path=path, reason=str(e))
        ) from e
