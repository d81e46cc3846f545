"""Sorting, TopK and suppression on a real device; run with `make test-gpu`."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from support.selection import nms, ordered, picture, suppressed
from support.small_graphs import compiled, results
from tvmscope.compiler import targets
from tvmscope.core.target import Target
from tvmscope.machine import cuda_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_device.find() is None, reason="no CUDA device here"),
]


@pytest.fixture(scope="module")
def cuda() -> Target:
    return targets.resolve("cuda")


@pytest.mark.parametrize(
    "dtype, shape, axis, count, largest",
    [
        ("float32", (8400,), 0, 300, True),
        ("int64", (8400,), 0, 300, False),
        ("float16", (3, 1001, 5), 1, 1001, False),
    ],
)
def test_top_k_is_the_head_of_the_stable_order(
    cuda: Target, dtype: str, shape: tuple[int, ...], axis: int, count: int, largest: bool
) -> None:
    x = np.random.default_rng(0).integers(0, 500, shape).astype(dtype)  # many equal ones
    values, indices = results(
        cuda, lambda x: relax.op.topk(x, count, axis, "both", largest, "int64"), x
    )
    wanted = np.take(ordered(x, axis, descending=largest), np.arange(count), axis)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, axis))


def test_argsort_puts_nan_above_all_numbers(cuda: Target) -> None:
    x = np.array([[1, np.nan, -np.inf, np.inf, 0, -0.0, np.nan] * 40], np.float32)
    (found,) = results(cuda, lambda x: relax.op.argsort(x, -1, True, "int32"), x)
    np.testing.assert_array_equal(found, ordered(x, 1, descending=True))


@pytest.mark.parametrize(
    "most, batch, classes, count", [(5000, 1, 1, 3000), (20, 2, 5, 700), (5000, 1, 80, 90)]
)
def test_suppression_keeps_what_the_greedy_rule_keeps(
    cuda: Target, most: int, batch: int, classes: int, count: int
) -> None:
    boxes, scores = picture(1, batch, classes, count)
    wanted = suppressed(boxes, scores, most, np.float32(0.45), np.float32(0.1))
    run = compiled(cuda, lambda b, s: nms(b, s, most, 0.45, 0.1), boxes, scores)
    for _ in range(10):  # a race would not show every time
        found, total = run(boxes, scores)
        np.testing.assert_array_equal(found, wanted)
        assert total.tolist() == [len(wanted)]
