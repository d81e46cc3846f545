"""Winograd: fewer multiplications for a 3x3 convolution, more additions, less precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tvmscope.core.target import Target
from tvmscope.learn import exercises
from tvmscope.learn.facts import Exhibit, StepRun, Study
from tvmscope.learn.lesson import Array, Lesson, Params, Step, Workload
from tvmscope.learn.lessons import conv2d
from tvmscope.learn.workloads import BLOCK, CHANNELS, CONV2D_BLOCKED, convolved
from tvmscope.measure.remote import here
from tvmscope.messages import Text, msg

if TYPE_CHECKING:
    from tvm import tirx
    from tvm.s_tir import Schedule

    from tvmscope.compiler.kernels.winograd_transforms import Transform

_SEED = 0


def _transform(tile: int) -> Transform:
    from tvmscope.compiler.kernels.winograd_transforms import F2, F4

    return F2 if tile == 2 else F4


def _make(tile: int, n: int) -> tirx.PrimFunc:
    from tvm import te

    from tvmscope.compiler.kernels import winograd
    from tvmscope.compiler.kernels.blocked import Window

    blocks, points = CHANNELS // BLOCK, (tile + 2) ** 2
    d = te.placeholder((1, blocks, n, n, BLOCK), "float32", name="D")
    w = te.placeholder((points, blocks, CHANNELS, BLOCK), "float32", name="W")
    c = winograd.conv2d(d, w, Window((1, 1), (1, 1, 1, 1), (1, 1)), _transform(tile))
    return te.create_prim_func([d, w, c])


def _inputs(tile: int, n: int) -> list[Array]:
    from tvmscope.compiler.kernels.winograd import pack_weight

    rng = np.random.default_rng(_SEED)
    data = 2 * rng.random((1, CHANNELS // BLOCK, n, n, BLOCK), dtype=np.float32) - 1
    kernel = 2 * rng.random((CHANNELS, CHANNELS, 3, 3), dtype=np.float32) - 1
    return [data, pack_weight(kernel, _transform(tile))]


def _reference(tile: int, inputs: Sequence[Array]) -> Array:
    """Compute the direct convolution; recover its weights by inverting their transform."""
    data, packed = inputs
    side = tile + 2
    undo = np.linalg.pinv(_transform(tile).g)
    points = packed.reshape(side, side, CHANNELS // BLOCK, CHANNELS, BLOCK).astype(np.float64)
    kernel = np.einsum("ya,aboic,xb->ociyx", undo, points, undo)
    kernel = kernel.reshape(CHANNELS, CHANNELS, 3, 3)
    plain = data[0].transpose(0, 3, 1, 2).reshape(CHANNELS, *data.shape[2:4])
    padded = np.pad(plain, [(0, 0), (1, 1), (1, 1)])
    found = convolved([padded, kernel.astype(np.float32)])
    blocked = found.reshape(1, -1, BLOCK, *found.shape[1:]).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(blocked)


def _direct_flops(n: int) -> float:
    return 2.0 * CHANNELS * CHANNELS * 9 * n * n


def _workload(tile: int) -> Workload:
    return Workload(
        name=f"winograd {tile}",
        words=msg("the same convolution by Winograd, {tile} x {tile} results at a time", tile=tile),
        make=partial(_make, tile),
        reference=partial(_reference, tile),
        inputs=partial(_inputs, tile),
        flops=_direct_flops,
        tolerance=2e-4,
    )


def direct(sch: Schedule, p: Params) -> None:
    numbers = Params({"rows": 2, "columns": conv2d.best_columns(p.target), "unroll": 4}, p.target)
    for step in conv2d.LESSON.steps:
        if step.name in ("channels-inside", "tile", "own-buffer", "threads", "zeros-first"):
            assert step.apply is not None
            step.apply(sch, numbers)


def by_rule(sch: Schedule, p: Params) -> None:
    from tvmscope.compiler.schedules.cpu.winograd import schedule_winograd

    found = schedule_winograd(sch.mod["main"], p.target)
    assert found is not None
    found.trace.apply_to_schedule(sch, remove_postproc=False)


def _says(tile: int) -> Callable[[StepRun, StepRun, Study], Text | None]:
    def says(now: StepRun, before: StepRun, study: Study) -> Text | None:
        assert now.built is not None
        return msg(
            "{points} multiplications for {results} results of a channel instead of {direct}: "
            "{share:.0%}. The speed counts the direct way's operations, so that it may exceed the "
            "roof. Against numpy it differs by {error:.0e} of the largest value.",
            points=(tile + 2) ** 2,
            results=tile * tile,
            direct=9 * tile * tile,
            share=(tile + 2) ** 2 / (9 * tile * tile),
            error=now.built.error,
        )

    return says


def exhibits(size: int, target: Target, live: bool) -> tuple[Exhibit, ...]:
    """Show the matrices of F(2x2, 3x3)."""
    f2 = _transform(2)
    parts = (("G", f2.g), ("B^T", f2.bt), ("A^T", f2.at))
    text = "\n\n".join(f"{name} =\n{np.array2string(m)}" for name, m in parts)
    return (
        Exhibit(
            title=msg("The transforms of F(2x2, 3x3)"),
            words=msg(
                "Weights become G w G^T, four by four instead of three by three; a tile of the "
                "input is transformed too, the two are multiplied number by number, and A^T turns "
                "the products into results. The matrices hold zeros, ones and halves: additions."
            ),
            code=text,
        ),
    )


LESSON = Lesson(
    name="winograd",
    title=msg("Winograd: a convolution with fewer multiplications"),
    idea=msg(
        "Neighbouring results of a 3x3 convolution share most of their input. Winograd's way "
        "transforms a tile of the input so that each product serves several results: for 4 x 4 "
        "results 36 multiplications instead of 144.\n\n"
        "It costs additions, memory for the transformed data and some digits of precision: larger "
        "tiles save more and lose more. So it is not a schedule, which never changes the result, "
        "but another algorithm, and it pays only where the multiplications were the limit."
    ),
    workload=CONV2D_BLOCKED,
    size=28,
    smallest=28,
    exhibits=here(exhibits),
    steps=(
        Step(
            name="direct",
            title=msg("The direct way, as in the lesson conv2d"),
            note=msg("All of that lesson's steps in one."),
            apply=direct,
        ),
        Step(
            name="f2",
            title=msg("Winograd, tiles of 2 x 2 results"),
            note=msg("Scheduled by tvmscope's own rule for it."),
            workload=_workload(2),
            apply=by_rule,
            says=_says(2),
        ),
        Step(
            name="f4",
            title=msg("Winograd, tiles of 4 x 4 results"),
            workload=_workload(4),
            apply=by_rule,
            says=_says(4),
        ),
    ),
    exercise=exercises.number(
        msg("How many multiplications does a tile of 4 x 4 results of one channel take?"),
        lambda study: (4 + 2) ** 2,
        lambda study, right: msg("Yes: 36, where the direct way takes 9 for each of 16 results."),
    ),
    closing=msg("Next: tvmscope learn profile"),
)
