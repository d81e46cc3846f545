"""Winograd convolution F(2x2, 3x3) and F(4x4, 3x3) on channel blocks: fewer multiplications.

Each m x m tile of the output comes from an (m+2) x (m+2) tile of the input. Both are transformed by
small constant matrices; between the two transforms a 3x3 convolution is (m+2)^2 independent matrix
products: 4/9 of the multiplications for m = 2, a quarter for m = 4. The weights' transform is done
at compile time, in double precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tvm import te, tirx

from tvmscope.analysis import winograd as costs
from tvmscope.compiler.cost.tiles import (
    CHANNEL_BLOCK,
    NEAR_BYTES,
    most_columns,
    padded,
    ranked_columns,
)
from tvmscope.compiler.kernels.blocked import NO_NOTES, Window
from tvmscope.compiler.kernels.marks import OP
from tvmscope.compiler.kernels.winograd_transforms import BY_NAME, F2, F4, Matrix, Transform
from tvmscope.core.target import Target

_FEWEST_TILES, _FEWEST_COLUMNS, _MOST_PADDING = 18, 5, 0.05
"""Limits of a core's share: the fewest tiles that reuse the weights (13 were too few, 18 enough),
the fewest tiles in registers, and the largest share of padding."""


def best(batch: int, rows: int, columns: int, target: Target) -> Transform | None:
    """Return the transform that is predicted to be fastest; None if the direct convolution is."""
    tile = costs.best_tile(batch, rows, columns)
    direct = costs.direct(batch, rows, padded(columns, target))
    if costs.cost(tile, batch, rows, columns) >= direct:
        return None
    return next(transform for transform in (F2, F4) if transform.tile == tile)


def best_name(batch: int, rows: int, columns: int, target: Target) -> str | None:
    """Like `best`, but return the name."""
    transform = best(batch, rows, columns, target)
    return next((name for name, known in BY_NAME.items() if known is transform), None)


def tile_count(batch: int, rows: int, columns: int, transform: Transform) -> int:
    """Return the number of tiles that cover a result."""
    return batch * -(-rows // transform.tile) * -(-columns // transform.tile)


def ranked_product_columns(count: int, target: Target) -> list[int]:
    """Return how many tiles a product may keep in registers: a divisor first, unless small."""
    most = most_columns(target)
    divisor = next(w for w in range(most, 0, -1) if count % w == 0)
    ranking = ranked_columns(count, target)
    if 2 * divisor < min(most, count):
        return ranking
    return [divisor, *(w for w in ranking if w != divisor)]


def even_share(count: int, weight: Sequence[int], target: Target) -> int:
    """Return how many tiles each core may take through all stages alone; 0 if that cannot pay off.

    Intermediate results then never leave its second-level cache, but it reads all the weights, so
    it needs enough tiles to reuse them. Only a measurement shows whether it is faster: it is if
    data pass slowly from core to core.
    """
    least, most = -(-count // target.cores), most_columns(target)
    tiles = range(least, int((1 + _MOST_PADDING) * count / target.cores) + 1)
    widths = range(_FEWEST_COLUMNS, most + 1)
    share = next((n for n in tiles if any(n % width == 0 for width in widths)), 0)
    points, blocks, inputs, lanes = weight
    between = 4 * points * share * (inputs + blocks * lanes)
    pays = target.cores > 1 and share >= _FEWEST_TILES and between <= NEAR_BYTES
    return share if pays else 0


def pack_weight(kernel: Matrix, transform: Transform) -> Matrix:
    """Pack OIHW to (alpha^2, O/16, I, 16), transformed; channels are padded with zeros."""
    o, i = kernel.shape[:2]
    full = np.pad(kernel, [(0, -o % CHANNEL_BLOCK), (0, -i % CHANNEL_BLOCK), (0, 0), (0, 0)])
    g = transform.g
    transformed = np.einsum("ay,oiyx,bx->aboi", g, full.astype(np.float64), g)
    a, b, o, i = transformed.shape
    split = transformed.reshape(a * b, o // CHANNEL_BLOCK, CHANNEL_BLOCK, i)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 2)).astype(kernel.dtype)


_Groups = tuple[tuple[int, ...], ...]


def _combine(
    row: tirx.Expr, matrix: Matrix, groups: _Groups, terms: Sequence[tirx.Expr]
) -> tirx.Expr:
    """Compute `matrix[row] @ terms`; the row's loop is unrolled, so that one case remains."""
    result: tirx.Expr | None = None
    for index in reversed(range(len(matrix))):
        value = _weighted(matrix[index], groups, terms)
        result = value if result is None else tirx.Select(row == index, value, result)
    assert result is not None
    return result


def _weighted(weights: Matrix, groups: _Groups, terms: Sequence[tirx.Expr]) -> tirx.Expr:
    """Compute a sum over groups, each scaled so that its last weight is one.

    Rows whose groups differ only by a factor then share them, and the compiler computes each once.
    """
    total: tirx.Expr | None = None
    for group in groups:
        used = [index for index in reversed(group) if weights[index] != 0]
        if not used:
            continue
        scale = weights[used[0]]
        inner = terms[used[0]]
        for index in used[1:]:
            inner = _plus(inner, weights[index] / scale, terms[index])
        total = _scaled(scale, inner) if total is None else _plus(total, scale, inner)
    assert total is not None
    return total


def _scaled(weight: float, term: tirx.Expr) -> tirx.Expr:
    return term if weight == 1 else term * tirx.const(float(weight), "float32")


def _plus(total: tirx.Expr, weight: float, term: tirx.Expr) -> tirx.Expr:
    return total - term if weight == -1 else total + _scaled(weight, term)


def conv2d(
    data: te.Tensor,
    weight: te.Tensor,
    window: Window,
    transform: Transform,
    computed_tiles: int | None = None,
    notes: Mapping[str, str] = NO_NOTES,
) -> te.Tensor:
    """Compute a 3x3 convolution of stride 1 on blocked data; `weight` comes from `pack_weight`.

    More tiles than needed may be computed, so that registers are filled evenly.
    """
    batch, _, height, width, _ = (int(d) for d in data.shape)
    rows, columns = window.output((height, width), (3, 3))
    m, alpha = transform.tile, transform.alpha
    down, across = -(-rows // m), -(-columns // m)
    tiles = computed_tiles or batch * down * across
    outputs, channels = int(weight.shape[1]), int(weight.shape[2])
    spectrum = _spectrum(data, window, transform, (down, across), tiles)
    k = te.reduce_axis((0, channels), "k")
    product = te.compute(
        (alpha * alpha, outputs, tiles, CHANNEL_BLOCK),
        lambda p, o, t, b: te.sum(
            spectrum[p // alpha, p % alpha, k // CHANNEL_BLOCK, t, k % CHANNEL_BLOCK]
            * weight[p, o, k, b],
            axis=[k],
        ),
        name="product",
        attrs={OP: "winograd_product", **notes},
    )
    return _inverse(product, transform, (batch, outputs, rows, columns), (down, across))


def _spectrum(
    data: te.Tensor, window: Window, transform: Transform, grid: tuple[int, int], tiles: int
) -> te.Tensor:
    """Transform the input: columns of a strip of tiles, then each tile's rows."""
    batch, blocks, height, width, _ = (int(d) for d in data.shape)
    (down, across), (top, left) = grid, window.padding[:2]
    m, alpha, bt, groups = transform.tile, transform.alpha, transform.bt, transform.input_groups
    strips = -(-tiles // across)

    def pixel(r: tirx.Expr, c: tirx.Expr, y: tirx.Expr, x: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        row, column = r % down * m + y - top, x - left
        inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
        if strips != batch * down:
            inside = tirx.all(inside, r < batch * down)
        zero = tirx.const(0, data.dtype)
        return tirx.if_then_else(inside, data(r // down, c, row, column, b), zero)

    strip = (blocks, strips, alpha, across * m + alpha - m, CHANNEL_BLOCK)
    column = te.compute(strip, lambda c, r, y, x, b: pixel(r, c, y, x, b), name="input_column")
    half = te.compute(
        strip,
        lambda c, r, y, x, b: _combine(
            y, bt, groups, [column(c, r, k, x, b) for k in range(alpha)]
        ),
        name="input_half",
    )
    return te.compute(
        (alpha, alpha, blocks, tiles, CHANNEL_BLOCK),
        lambda y, x, c, t, b: _combine(
            x, bt, groups, [half(c, t // across, y, t % across * m + k, b) for k in range(alpha)]
        ),
        name="input_transform",
        attrs={OP: "winograd_input"},
    )


def _inverse(
    product: te.Tensor,
    transform: Transform,
    shape: tuple[int, int, int, int],
    grid: tuple[int, int],
) -> te.Tensor:
    batch, outputs, rows, columns = shape
    down, across = grid
    m, alpha, at, groups = transform.tile, transform.alpha, transform.at, transform.output_groups
    half = te.compute(
        (outputs, batch * down * across, m, alpha, CHANNEL_BLOCK),
        lambda o, t, i, x, b: _combine(
            i, at, groups, [product(y * alpha + x, o, t, b) for y in range(alpha)]
        ),
        name="output_half",
    )
    whole = te.compute(
        (outputs, batch * down * across, m, m, CHANNEL_BLOCK),
        lambda o, t, i, j, b: _combine(j, at, groups, [half(o, t, i, x, b) for x in range(alpha)]),
        name="output_transform",
        attrs={OP: "winograd_output"},
    )
    return te.compute(
        (batch, outputs, rows, columns, CHANNEL_BLOCK),
        lambda n, o, h, w, b: whole[o, (n * down + h // m) * across + w // m, h % m, w % m, b],
        name="untile",
    )
