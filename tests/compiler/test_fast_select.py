"""Sorting, TopK and suppression by our own kernels: what numpy finds, in parallel."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from support.selection import nms, ordered, picture, suppressed
from support.small_graphs import lowered, results
from tvmscope.compiler import targets
from tvmscope.core.target import Target

DTYPES = ("float32", "float16", "float64", "int64", "int32", "int8", "uint8")


@settings(max_examples=15, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(DTYPES), largest=st.booleans())
def test_top_k_is_the_head_of_the_stable_order(
    host: Target, data: Any, dtype: str, largest: bool
) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    axis = data.draw(st.integers(0, len(shape) - 1))
    shape[axis] = data.draw(st.integers(1, 150))
    count = data.draw(st.integers(1, shape[axis]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = rng.integers(0, 20, shape).astype(dtype)  # many equal ones

    def make(x: relax.Var) -> relax.Expr:
        return relax.op.topk(x, count, axis, "both", largest, "int64")

    values, indices = results(host, make, x)
    wanted = np.take(ordered(x, axis, descending=largest), np.arange(count), axis)
    np.testing.assert_array_equal(indices, wanted)
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, axis))


@pytest.mark.parametrize("largest", [False, True])
def test_few_of_a_long_row_are_found_in_one_pass(host: Target, largest: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-50, 50, (3, 2000)).astype(np.float32)
    x[1, ::7], x[2, 5] = np.nan, -np.inf

    def make(x: relax.Var) -> relax.Expr:
        return relax.op.topk(x, 9, 1, "indices", largest, "int32")

    (found,) = results(host, make, x)
    np.testing.assert_array_equal(found, ordered(x, 1, descending=largest)[:, :9])
    names = [var.name_hint for var, _ in lowered(host, make, x).module.functions_items()]
    assert any("first_few" in name for name in names)
    assert not any("sort_order" in name for name in names)


@pytest.mark.parametrize("descending", [False, True])
def test_argsort_puts_nan_above_all_numbers(host: Target, descending: bool) -> None:
    x = np.array([[1, np.nan, -np.inf, np.inf, 0, -0.0, np.nan] * 7], np.float32)
    (found,) = results(host, lambda x: relax.op.argsort(x, -1, descending, "int32"), x)
    np.testing.assert_array_equal(found, ordered(x, 1, descending=descending))


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**32), batch=st.integers(1, 2), classes=st.integers(1, 3),
    count=st.integers(1, 70), most=st.integers(1, 80), overlap=st.sampled_from((0.0, 0.3, 0.7)),
)  # fmt: skip
def test_suppression_keeps_what_the_greedy_rule_keeps(
    host: Target, seed: int, batch: int, classes: int, count: int, most: int, overlap: float
) -> None:
    boxes, scores = picture(seed, batch, classes, count)
    found, total = results(host, lambda b, s: nms(b, s, most, overlap, 0.1), boxes, scores)
    wanted = suppressed(boxes, scores, most, np.float32(overlap), np.float32(0.1))
    np.testing.assert_array_equal(found, wanted)
    assert total.tolist() == [len(wanted)]


def test_a_score_of_nan_is_no_box_and_hides_none(host: Target) -> None:
    boxes, scores = picture(0, 1, 1, 9)
    clean = scores.copy()
    clean[0, 0, 3], scores[0, 0, 3] = 0, np.nan
    found, _ = results(host, lambda b, s: nms(b, s, 9, 0.45, 0.1), boxes, scores)
    wanted = suppressed(boxes, clean, 9, np.float32(0.45), np.float32(0.1))
    np.testing.assert_array_equal(found, wanted)


def test_on_a_gpu_sorting_has_a_thread_for_each_element_and_suppression_a_block_for_each_class(
) -> None:  # fmt: skip
    boxes, scores = picture(0, 1, 3, 700)
    done = lowered(
        targets.resolve("cuda:sm_90"), lambda b, s: nms(b, s, 100, 0.45, 0.1), boxes, scores
    )
    texts = {v.name_hint: f.script() for v, f in done.module.functions_items()}
    # 700 elements: chunks of 16, then six times twice as long, each with ceil(2100 / 256) blocks
    assert texts["sort_order"].count('launch_thread("blockIdx.x", T.int64(9))') == 7
    assert 'launch_thread("blockIdx.x", T.int64(3))' in texts["nms_suppress"]
    assert 'launch_thread("threadIdx.x", T.int64(512))' in texts["nms_suppress"]
    kernels = [call.kernel for call in done.calls]
    assert not [name for name in kernels if "call_packed" in texts[name]]  # the host's sort


@pytest.mark.parametrize(
    "make, inputs",
    [
        (lambda x: relax.op.topk(x, 300, 0, "both"), [np.zeros(8400, np.float32)]),
        (lambda b, s: nms(b, s, 20, 0.45, 0.1), picture(0, 1, 1, 3000)),
    ],
    ids=["topk", "suppression"],
)
def test_code_for_a_gpu_is_made_in_seconds(make: Any, inputs: Any) -> None:
    target = targets.resolve("cuda:sm_90")
    module = lowered(target, make, *inputs).module
    made = tvm.target.Target(targets.to_tvm(target), host=targets.to_tvm(targets.host_target()))
    begun = time.process_time()
    relax.build(module, made, relax_pipeline=None)
    # 0.4 s; over a minute where a kernel repeats its expressions, which TVM then analyses anew
    assert time.process_time() - begun < 10
