"""Attention as one tensor expression: scores, softmax and the weighted sum of a tile of rows.

The scores of a few rows stay in the first-level cache between the three steps; the softmax's
division comes last, when a row has shrunk to the width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import te, tirx

from tvmscope.compiler.kernels.blocked import pad_rows
from tvmscope.compiler.kernels.marks import OP
from tvmscope.compiler.kernels.norms import powers


@dataclass(frozen=True)
class Shape:
    """The sizes that the packed operands do not determine."""

    columns: int
    """The number of keys, without those that fill the last panel."""
    width: int
    """The width of a value, without padding."""
    computed_rows: int
    """The number of queries, padded to whole register tiles."""
    heads: int
    """Heads per item of the batch."""
    empty_is_zero: bool


def attention(
    query: te.Tensor, keys: te.Tensor, values: te.Tensor, *mask: te.Tensor, shape: Shape
) -> te.Tensor:
    """Return softmax(query @ keys + mask) @ values; `keys` and `values` are in column panels.

    `query` is (batch x heads, rows, depth); a mask has four dimensions, each full or 1.
    """
    batch, rows, depth = (int(d) for d in query.shape)
    panel = int(keys.shape[-1])
    if shape.computed_rows != rows:
        query = pad_rows(query, shape.computed_rows)
    scores = _panel_product(query, keys, depth, "scores")

    def score(b: tirx.Var, i: tirx.Var, j: tirx.Var) -> tirx.Expr:
        value = scores(b, i, j // panel, j % panel)
        for m in mask:
            where = (b // shape.heads, b % shape.heads, tirx.min(i, rows - 1), j)
            value += m(*(x if int(n) > 1 else 0 for x, n in zip(where, m.shape, strict=True)))
        return value

    masked = te.compute((batch, shape.computed_rows, shape.columns), score, name="masked")
    weights, scale = powers(masked, empty_is_zero=shape.empty_is_zero)
    mixed = _panel_product(weights, values, shape.columns, "mixed")
    result = te.compute(
        (batch, shape.computed_rows, shape.width),
        lambda b, i, j: mixed(b, i, j // panel, j % panel) * scale(b, i),
        name="attention",
        attrs={OP: "attention"},
    )
    if shape.computed_rows == rows:
        return result
    return te.compute((batch, rows, shape.width), lambda *i: result(*i), name="crop")


def _panel_product(left: te.Tensor, packed: te.Tensor, depth: int, name: str) -> te.Tensor:
    """Return (batch, rows, panels, p); panels stay an axis, so a narrower result has whole ones."""
    panels, panel = int(packed.shape[1]), int(packed.shape[3])
    k = te.reduce_axis((0, depth), "k")
    return te.compute(
        (left.shape[0], left.shape[1], panels, panel),
        lambda b, i, p, j: te.sum(left(b, i, k) * packed(b, p, k, j), axis=k),
        name=name,
        attrs={OP: f"attention_{name}"},
    )
