"""Passes on small graphs: each changes what it names and leaves its near miss alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tvm import relax
from tvm.tirx import FloatImm, IntImm

from support.graph_passes import Build, check, const
from tvmscope.compiler import targets
from tvmscope.compiler.rewrites.scalar_operands import scalar_operands
from tvmscope.compiler.rewrites.share_weights import share_weights
from tvmscope.compiler.rewrites.sink_reshapes import UNARY, sink_reshapes
from tvmscope.compiler.rewrites.wide_sums import wide_sums
from tvmscope.core.target import Target

op = relax.op

# ---- scalar_operands ------------------------------------------------------------------------

HALF = FloatImm("float32", 0.5)


@pytest.mark.parametrize("build", [op.add, op.subtract, op.multiply, op.divide, op.maximum])
def test_scalars_become_constants(build: Build) -> None:
    check(
        scalar_operands(),
        lambda x: build(x, HALF),
        lambda x: build(x, const(0.5)),
        torch.ones(3, 5),
    )


def test_clip_becomes_two_comparisons() -> None:
    check(
        scalar_operands(),
        lambda x: op.clip(x, 0, 6),
        lambda x: op.minimum(op.maximum(x, const(0.0)), const(6.0)),
        torch.ones(3, 5),
    )


def test_scalars_of_integers_and_of_other_operators_stay() -> None:
    for build, value in (
        (lambda x: op.add(x, IntImm("int64", 2)), torch.arange(3)),
        (lambda x: op.clip(x, 0, 6), torch.arange(3)),
        (lambda x: op.nn.leakyrelu(x, 0.1), torch.ones(3)),
        (lambda x: op.add(x, const(0.5)), torch.ones(3)),
    ):
        check(scalar_operands(), build, build, value)


# ---- sink_reshapes --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in UNARY if n != "relax.clip"])
def test_reshapes_sink_below_elementwise_operators(name: str) -> None:
    build = op
    for part in name.removeprefix("relax.").split("."):
        build = getattr(build, part)
    check(
        sink_reshapes(),
        lambda x: build(op.reshape(x, (3, 5))),
        lambda x: op.reshape(build(x), (3, 5)),
        torch.ones(15),
    )


def test_reshapes_sink_through_several_and_merge() -> None:
    check(
        sink_reshapes(),
        lambda x: op.nn.relu(op.reshape(op.clip(op.reshape(x, (3, 5)), -1, 1), (5, 3))),
        lambda x: op.reshape(op.nn.relu(op.clip(x, -1, 1)), (5, 3)),
        torch.ones(15),
    )


def test_a_broadcast_to_the_same_shape_vanishes() -> None:
    check(
        sink_reshapes(),
        lambda x: op.negative(op.broadcast_to(x, (3, 5))),
        op.negative,
        torch.ones(3, 5),
    )


def test_a_broadcast_that_widens_stays() -> None:
    unchanged = lambda x: op.negative(op.broadcast_to(x, (3, 5)))  # noqa: E731 (a graph in short)
    check(sink_reshapes(), unchanged, unchanged, torch.ones(1, 5))


def test_two_permutes_are_one() -> None:
    check(
        sink_reshapes(),
        lambda x: op.permute_dims(op.permute_dims(x, [1, 2, 0]), [0, 2, 1]),
        lambda x: op.permute_dims(x, [1, 0, 2]),
        torch.ones(2, 3, 5),
    )


def test_a_permute_and_its_inverse_vanish() -> None:
    check(
        sink_reshapes(),
        lambda x: op.negative(op.permute_dims(op.permute_dims(x, [1, 2, 0]), [2, 0, 1])),
        op.negative,
        torch.ones(2, 3, 5),
    )


def test_a_reshape_back_vanishes() -> None:
    check(
        sink_reshapes(),
        lambda x: op.negative(op.reshape(op.reshape(x, (15,)), (3, 5))),
        op.negative,
        torch.ones(3, 5),
    )


STAYING: dict[str, Build] = {
    "softmax looks along an axis": lambda x: op.nn.softmax(op.reshape(x, (3, 5)), -1),
    "addition broadcasts": lambda x: op.add(op.reshape(x, (3, 5)), const(np.ones(5))),
    "a transpose is no reshape": lambda x: op.nn.relu(op.permute_dims(x, [1, 0])),
}


@pytest.mark.parametrize("name", STAYING)
def test_other_reshapes_stay(name: str) -> None:
    check(sink_reshapes(), STAYING[name], STAYING[name], torch.ones(5, 3))


# ---- wide_sums ------------------------------------------------------------------------------

HALF_IMAGE = torch.ones(1, 4, 9, 7).half()
WEIGHT = np.ones((6, 2, 3, 3), np.float16)


def average(x: relax.Expr) -> relax.Expr:
    return op.nn.avg_pool2d(x, (3, 2), (2, 1), (1, 0), ceil_mode=True)


def wide_average(x: relax.Expr) -> relax.Expr:
    return op.astype(average(op.astype(x, "float32")), "float16")


def grouped(x: relax.Expr, out_dtype: str | None = None) -> relax.Expr:
    weight = const(WEIGHT, "float16")
    return op.nn.conv2d(x, weight, 2, (0, 1, 2, 3), 2, groups=2, out_dtype=out_dtype)


def test_half_precision_is_summed_in_single_precision_on_a_cpu(host: Target) -> None:
    step = wide_sums(host)
    check(step, average, wide_average, HALF_IMAGE)
    check(step, grouped, lambda x: op.astype(grouped(x, "float32"), "float16"), HALF_IMAGE)
    check(
        step,
        op.matmul,
        lambda x, y: op.astype(op.matmul(x, y, "float32"), "float16"),
        torch.ones(3, 5).half(),
        torch.ones(5, 7).half(),
    )
    for rows in (op.nn.softmax, op.sum, op.mean):
        check(step, rows, lambda x, f=rows: op.astype(f(op.astype(x, "float32")), "float16"),
              torch.ones(3, 5).half())  # fmt: skip


def test_what_needs_no_wider_sum_stays(host: Target) -> None:
    step = wide_sums(host)
    check(step, average, average, HALF_IMAGE.float())
    check(step, op.nn.max_pool2d, op.nn.max_pool2d, HALF_IMAGE)
    wide = lambda x: grouped(x, "float32")  # noqa: E731 - a name would say no more
    check(step, wide, wide, HALF_IMAGE)


def test_gpu_products_keep_their_type_and_averages_do_not() -> None:
    step = wide_sums(targets.resolve("cuda:sm_90"))
    check(step, grouped, grouped, HALF_IMAGE)
    check(step, average, wide_average, HALF_IMAGE)


# ---- share_weights --------------------------------------------------------------------------

MATRIX = const(np.arange(12.0).reshape(3, 4))


def test_a_moved_weight_of_a_batch_of_one_is_a_weight() -> None:
    """As PyTorch writes a linear layer of an input that is not contiguous."""

    def turned() -> relax.Expr:
        return relax.BlockBuilder.current().emit(op.permute_dims(MATRIX))

    check(
        share_weights(),
        lambda x: op.matmul(x, op.broadcast_to(turned(), (1, 4, 3))),
        lambda x: op.matmul(x, op.reshape(turned(), (4, 3))),
        torch.ones(1, 5, 4),
    )


def test_a_computed_matrix_of_a_batch_of_one_is_no_weight() -> None:
    def graph(x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return op.matmul(x, op.broadcast_to(y, (1, 4, 3)))

    check(share_weights(), graph, graph, torch.ones(1, 5, 4), torch.ones(4, 3))
