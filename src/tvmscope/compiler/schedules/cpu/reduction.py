"""Sums, means and maxima over the last axes: in the lanes of a vector, then across them.

parallel  rows
  lanes     sixteen partial results, each over every sixteenth element
  across    one result of the sixteen
  epilogue  the division of a mean, and the operators fused after it

In reductions over leading axes, neighbouring results are in neighbouring lanes anyway: the
fallback vectorises them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.compiler.schedules.blocks import Block, new_schedule, static_extents
from tvmscope.compiler.schedules.cpu.blocks import find_reduction, inline_epilogue
from tvmscope.core.target import Target
from tvmscope.messages import marked

if TYPE_CHECKING:
    from tvm import s_tir, tirx

_LANES = 16
_SHORTEST = 256
"""In shorter rows the sum across lanes takes longer than the fallback's vectorisation over rows."""


def schedule_reduction(func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
    """Takes functions with one reduction, over trailing axes that fill vectors."""
    from tvmscope.compiler.kernels import extremes

    extremes.register()
    sch = new_schedule(func)
    main, axes = find_reduction(sch) or (None, 0)
    if main is None:
        return None
    extents = static_extents(sch, main)
    if extents is None or not _reduces_rows(sch, main, axes):
        return None
    last = inline_epilogue(sch, main) if sch.get_consumers(main) else None
    rows = extents[:-axes]
    if last is not None and (not rows or static_extents(sch, last) != rows):
        return None  # rfactor fails on a whole tensor that is not the result, or on another shape
    while ahead := sch.get_producers(main):
        sch.compute_inline(ahead[0])
    element = sch.get_loops(main)[-axes:]
    whole = sch.fuse(*element) if axes > 1 else element[0]
    _, lane = sch.split(whole, factors=[None, _LANES])
    partial = sch.rfactor(lane, factor_axis=0)
    *outer, across = sch.get_loops(main)
    *_, k, lane = sch.get_loops(partial)
    if outer:
        row = sch.fuse(*outer)
        sch.compute_at(partial, row)
        if last is not None:
            sch.reverse_compute_at(last, row)
        sch.parallel(row)
        *_, lane, k = sch.get_loops(partial)  # new loops, the factored axis first
        sch.reorder(k, lane)
    sch.set_scope(partial, 0, "local")
    sch.vectorize(lane)
    sch.unroll(across)
    sch.decompose_reduction(partial, k)
    sch.decompose_reduction(main, across)
    return sch


def _reduces_rows(sch: s_tir.Schedule, main: Block, axes: int) -> bool:
    """Whether the reduced axes are the last ones of the input, long, and fill vectors."""
    node = sch.get(main)
    reduced = [v.var for v in node.iter_vars][-axes:]
    region, shape = node.reads[0].region, node.reads[0].source.shape
    if len(region) < axes or not all(
        r.min.same_as(v) for r, v in zip(region[-axes:], reduced, strict=True)
    ):
        return False
    length = prod(int(d) for d in shape[-axes:])
    return length >= _SHORTEST and length % _LANES == 0


RULE = ScheduleRule(
    name="reduction",
    devices=("cpu",),
    version=1,
    words=marked("Sums and maxima over the last axes: in the lanes of a vector, then across them."),
    schedule=schedule_reduction,
    switch=Switch(name="reduction-schedule"),
)
