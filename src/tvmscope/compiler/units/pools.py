"""Joins a convolution and the pool that alone reads it: one kernel stores the pool's values.

    max_pool2d(relu(conv(x, w) + b), 2x2 / 2)  ->  one kernel, a quarter of the stores
    mean(relu(conv(x, w) + b + y), pixels)     ->  one kernel

Windows must lie side by side, without padding: overlapping ones would compute pixels several times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tvm import relax

from tvmscope.compiler.units.found import Found
from tvmscope.compiler.units.graph import Graph
from tvmscope.cuda.units import Conv2d, Pool, Pooled, Unit
from tvmscope.errors import UsageError

Prefers = Callable[[Unit, Sequence[Unit]], bool]
"""Says whether one kernel is faster than several."""


def join(function: relax.Function, found: list[Found], prefers: Prefers) -> list[Found]:
    """Return the units of a function, with pools inside convolutions where that is faster."""
    graph = Graph(function)
    convolutions = {f.last: f for f in found if isinstance(f.unit, Conv2d)}
    joined: dict[relax.Var, Found] = {}
    inside: set[relax.Var] = set()
    for pool in found:
        image = pool.operands.get("input")
        source = convolutions.get(image) if isinstance(image, relax.Var) else None
        if source is None or graph.only_reader(source.last) not in pool.replaced:
            continue
        unit = _joined(source.unit, pool.unit)
        if unit is not None and prefers(unit, (source.unit, pool.unit)):
            inside.add(source.last)
            joined[pool.last] = replace(
                pool,
                unit=unit,
                operands=source.operands,
                replaced=(*source.replaced, *pool.replaced),
            )
    return [joined.get(f.last, f) for f in found if f.last not in inside]


def _joined(source: Unit, pool: Unit) -> Conv2d | None:
    """Return the convolution with the pool behind it; None if no kernel computes both."""
    if not isinstance(source, Conv2d) or not isinstance(pool, Pool) or any(pool.padding):
        return None
    if (pool.n, pool.h, pool.w, pool.c) != (source.n, source.p, source.q, source.oc):
        return None  # the epilogue has reshaped the image
    window = (pool.r, pool.s)
    beside = pool.stride == window or pool.whole
    whole = (pool.p, pool.q) == (pool.h // pool.r, pool.w // pool.s)  # none reaches past the image
    if source.depthwise or source.pooled is not None or not (beside and whole):
        return None
    try:
        return replace(source, pooled=Pooled(form=pool.form, r=pool.r, s=pool.s))
    except UsageError:
        return None
