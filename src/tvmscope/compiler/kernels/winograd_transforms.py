"""The matrices of Winograd's transforms F(2x2, 3x3) and F(4x4, 3x3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Matrix = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Transform:
    """The matrices of one tile size; Lavin and Gray (2015) list those of the usual points."""

    g: Matrix
    """The matrix for the weights."""
    bt: Matrix
    """The matrix for the input."""
    at: Matrix
    """The matrix for the output."""

    @property
    def tile(self) -> int:
        """The side of an output tile."""
        return len(self.at)

    @property
    def alpha(self) -> int:
        """The side of an input tile."""
        return len(self.bt)

    @property
    def input_groups(self) -> tuple[tuple[int, ...], ...]:
        """Terms whose sum two rows of `bt` share, except for its sign."""
        return tuple(range(0, self.alpha, 2)), tuple(range(1, self.alpha, 2))

    @property
    def output_groups(self) -> tuple[tuple[int, ...], ...]:
        """The same for `at`: a point and its negative form a pair."""
        pairs = ((k + 1, k) for k in range(1, self.alpha - 1, 2))
        return (0,), *pairs, (self.alpha - 1,)


F2 = Transform(
    g=np.array([[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]]),
    bt=np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
    at=np.array([[1, 1, 1, 0], [0, 1, -1, -1]]),
)
"""The transform for the points 0, 1, -1 and infinity."""


def six_points(a: float, b: float) -> Transform:
    """Return the transform for the points 0, a, -a, b, -b and infinity.

    Columns of `at` are scaled so that its second and its third row have a weight of one: a sum of
    two products is then one instruction.
    """
    aa, bb = a * a, b * b
    scales = np.array([1, 1 / a, 1 / a, 1 / bb, 1 / bb, 1])
    at = [[1, 1, 1, 1, 1, 0], [0, a, -a, b, -b, 0], [0, aa, aa, bb, bb, 0],
          [0, aa * a, -aa * a, bb * b, -bb * b, 1]]  # fmt: skip
    bt = [[aa * bb, 0, -aa - bb, 0, 1, 0],
          [0, -a * bb, -bb, a, 1, 0], [0, a * bb, -bb, -a, 1, 0],
          [0, -aa * b, -aa, b, 1, 0], [0, aa * b, -aa, -b, 1, 0],
          [0, aa * bb, 0, -aa - bb, 0, 1]]  # fmt: skip
    norms = np.array([aa * bb, *[2 * aa * (aa - bb)] * 2, *[2 * bb * (bb - aa)] * 2, 1])
    g = [[1, 0, 0], [1, a, aa], [1, -a, aa], [1, b, bb], [1, -b, bb], [0, 0, 1]]
    return Transform(
        g=np.array(g) / (norms * scales)[:, None], bt=np.array(bt), at=np.array(at) * scales
    )


F4 = six_points(3 / 4, 3 / 2)
"""These points lose half as much to rounding as the usual 1 and 2, in as many instructions."""

BY_NAME = {"winograd2": F2, "winograd4": F4}
