"""ONNX graphs around NonZero: fixed sizes give the same, and what is not understood stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

from tvmscope.compiler.frontends.masks.onnx_rewrite import fix_sizes

Array = np.ndarray[Any, Any]
PLACES = "places = NonZero(mask) at = Transpose<perm = [1, 0]>(places)"
COUNT = """shape = Shape(at) zero = Constant<value_int = 0>() first = Constant<value_ints = [0]>()
    size = Gather(shape, zero) count = Unsqueeze(size, first)"""


def model(body: str, result: str = "float[3, 5] y", data: str = "float[3, 5] x") -> onnx.ModelProto:
    """A graph of `data`, a mask and another mask."""
    return parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 18]>
        g ({data}, bool[3, 5] mask, bool[3, 5] other) => ({result})
        {{ {body} }}"""
    )


def outputs(graph: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    return session.run(None, inputs)  # type: ignore[no-any-return]


def inputs_of(seed: int, share: float) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((3, 5)).astype(np.float32),
        "mask": rng.random((3, 5)) < share,
        "other": rng.random((3, 5)) < 0.5,
    }


FIXED = {
    "two scatters of one mask": f"""{PLACES} old = GatherND(x, at) a = Exp(old)
        z = ScatterND(x, at, a) b = GatherND(z, at) c = Add(b, old) y = ScatterND(z, at, c)""",
    "zeros": f"{PLACES} {COUNT} a = ConstantOfShape(count) y = ScatterND(x, at, a)",
    "the largest": f"""{PLACES} {COUNT} n = Constant<value_float = 0.25>()
        a = Expand(n, count) y = ScatterND<reduction = "max">(x, at, a)""",
    "the first ones of some": f"""{PLACES} {COUNT} flat = Constant<value_ints = [-1]>()
        all = Reshape(x, flat) a = Slice(all, first, count, first) b = Neg(a)
        y = ScatterND(x, at, b)""",
    "numbers for a mask": """m = Cast<to = 1>(mask) places = NonZero(m)
        at = Transpose<perm = [1, 0]>(places) a = GatherND(x, at) b = Neg(a)
        y = ScatterND(x, at, b)""",
    "rows": """half = Constant<value_float = 0.5>() one = Constant<value_ints = [1]>()
        largest = ReduceMax<keepdims = 0>(x, one) m = Greater(largest, half) places = NonZero(m)
        at = Transpose<perm = [1, 0]>(places) a = GatherND(x, at) b = Mul(a, half)
        y = ScatterND(x, at, b)""",
    "a mask of a part": """half = Constant<value_float = 0.5>()
        i = Constant<value_ints = [1, 2]>() m = Gather<axis = 0>(mask, i) places = NonZero(m)
        at = Transpose<perm = [1, 0]>(places) a = GatherND(x, at) b = Mul(a, half)
        y = ScatterND(x, at, b)""",
}


@pytest.mark.parametrize("body", FIXED.values(), ids=FIXED)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.sampled_from((0.0, 0.2, 0.7, 1.0)))
def test_fixed_sizes_give_the_same(body: str, seed: int, share: float) -> None:
    graph = model(body)
    fixed = fix_sizes(graph)
    assert not {"NonZero", "ScatterND"} <= {node.op_type for node in fixed.graph.node}
    inputs = inputs_of(seed, share)
    wanted = outputs(graph, inputs)
    for found, expected in zip(outputs(fixed, inputs), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


LEFT = {
    "values of one mask to another": f"""{PLACES} others = NonZero(other)
        to = Transpose<perm = [1, 0]>(others) a = GatherND(x, at) y = ScatterND(x, to, a)""",
    "places in another order": f"""{PLACES} {COUNT} back = Constant<value_ints = [-1]>()
        far = Constant<value_ints = [-9999]>() turned = Slice(at, back, far, first, back)
        a = GatherND(x, at) y = ScatterND(x, turned, a)""",
    "the number is computed with": f"""{PLACES} {COUNT} minus = Neg(count) plus = Neg(minus)
        n = Constant<value_float = 0.25>() a = Expand(n, plus) y = ScatterND(x, at, a)""",
    "places that fall together": f"""{PLACES} k01 = Constant<value_ints = [0, 1]>()
        top = Mul(at, k01) a = GatherND(x, at) y = ScatterND(x, top, a)""",
    "places outside": f"""{PLACES} k30 = Constant<value_ints = [0, 3]>() beside = Add(at, k30)
        a = GatherND(x, at) y = ScatterND(x, beside, a)""",
}


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_what_is_not_understood_stays_as_it_is(body: str) -> None:
    graph = model(body)
    onnx.checker.check_model(graph, full_check=True)
    assert fix_sizes(graph) is graph


def test_places_that_are_divided_by_zero_when_not_chosen_stay() -> None:
    body = f"""{PLACES} a = GatherND(x, at) one = Constant<value_ints = [1]>() b = Div(one, a)
        y = ScatterND(x, at, b)"""
    graph = model(body, "int64[3, 5] y", "int64[3, 5] x")
    assert fix_sizes(graph) is graph


@pytest.mark.parametrize(
    "more, result",
    [
        ("others = NonZero(other)", "int64[2, n] others"),
        ("", "int64[2, n] places"),
        (COUNT, "int64[1] count"),
        ("c = ReduceSum<keepdims = 1>(a)", "float[1] c"),
    ],
    ids=["another mask", "its places", "their number", "their sum"],
)
def test_what_else_is_computed_from_places_is_real(more: str, result: str) -> None:
    body = f"{PLACES} a = GatherND(x, at) b = Neg(a) y = ScatterND(x, at, b) {more}"
    graph = model(body, f"float[3, 5] y, {result}")
    fixed = fix_sizes(graph)
    kinds = [node.op_type for node in fixed.graph.node]
    assert kinds.count("NonZero") == 1
    assert "ScatterND" not in kinds
    inputs = inputs_of(0, 0.4)
    for found, expected in zip(outputs(fixed, inputs), outputs(graph, inputs), strict=True):
        np.testing.assert_array_equal(found, expected)
