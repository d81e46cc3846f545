"""Pools volumes over rows and columns first, then over slices.

    pool3d(x, (d, h, w))  ->  pool2d over (d, 1) of pool2d over (h, w)

The largest of the largest is the largest, and the mean of means a mean, because the elements that a
window counts are a product of those along each axis. That takes d + h * w operations in place of
d * h * w, and schedules for images suffice; both reshapes move nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tvm
from tvm import relax

from tvmscope.compiler.graph.rewrite import Rewriter, rewrite_calls, static_shape

Pool = Callable[..., relax.Expr]


def separable_pools() -> tvm.transform.Pass:
    """Return the pass."""
    images = {"max": relax.op.nn.max_pool2d, "avg": relax.op.nn.avg_pool2d}
    handlers = {f"relax.nn.{k}_pool3d": partial(_pool, pool=pool) for k, pool in images.items()}
    return rewrite_calls("SeparablePools", handlers)


def _pool(rewriter: Rewriter, call: relax.Call, *, pool: Pool) -> relax.Expr | None:
    attrs, shape, result = call.attrs, static_shape(call.args[0]), static_shape(call)
    if shape is None or result is None or (attrs.layout, attrs.out_layout) != ("NCDHW",) * 2:
        return None
    (n, c, d, h, w), (*_, slices, rows, columns) = shape, result
    front, top, left, back, bottom, right = (int(p) for p in attrs.padding)
    sizes = [[int(s) for s in given] for given in (attrs.pool_size, attrs.strides, attrs.dilation)]
    how = {"ceil_mode": attrs.ceil_mode, "count_include_pad": attrs.count_include_pad}
    value = rewriter.emit(relax.op.reshape(call.args[0], (n, c * d, h, w)))
    size, stride, dilation = (tuple(s[1:]) for s in sizes)
    if (*size, *stride, top, left, bottom, right) != (1, 1, 1, 1, 0, 0, 0, 0):
        pads = (top, left, bottom, right)
        value = rewriter.emit(pool(value, size, stride, pads, dilation, **how))
    if static_shape(value) != (n, c * d, rows, columns):
        return None
    value = rewriter.emit(relax.op.reshape(value, (n, c, d, rows * columns)))
    size, stride, dilation = ((s[0], 1) for s in sizes)
    if (*size, *stride, front, back) != (1, 1, 1, 1, 0, 0):
        value = rewriter.emit(pool(value, size, stride, (front, 0, back, 0), dilation, **how))
    if static_shape(value) != (n, c, slices, rows * columns):
        return None
    return relax.op.reshape(value, result)
