"""Scatters turned round: the same values as ONNX's own reference, in parallel, on both devices."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, tirx

from tvmscope.compiler import pipeline, targets
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target

Array = np.ndarray[Any, Any]
REDUCTIONS = ("update", "add", "mul", "min", "max")
COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
Make = Callable[..., relax.Expr]


def lowered(host: Target, make: Make, *inputs: Array, **options: Any) -> pipeline.Lowered:
    """A graph of one expression, made from one variable for each input, through the pipeline."""
    builder = relax.BlockBuilder()
    types = [relax.TensorType(a.shape, str(a.dtype)) for a in inputs]
    params = [relax.Var(f"x{n}", t) for n, t in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    target = tvm.target.Target(targets.to_tvm(host))
    return pipeline.run(builder.get(), host, target, CompileOptions(**options))


def result(host: Target, make: Make, *inputs: Array, **options: Any) -> Array:
    """What the graph computes on this machine."""
    module = lowered(host, make, *inputs, **options).module
    built = relax.build(module, tvm.target.Target(targets.to_tvm(host)), relax_pipeline=None)
    machine = relax.VirtualMachine(built, tvm.cpu())
    return machine["main"](*(tvm.runtime.tensor(a) for a in inputs)).numpy()


def expected_nd(data: Array, indices: Array, updates: Array, reduction: str) -> Array:
    """ONNX's ScatterND, one row after the other."""
    out = data.copy()
    rows = indices.reshape(-1, indices.shape[-1])
    for row, new in zip(rows, updates.reshape(len(rows), *data.shape[rows.shape[1] :]), strict=True):
        out[tuple(row)] = COMBINE[reduction](out[tuple(row)], new)
    return out


def expected_elements(data: Array, indices: Array, updates: Array, axis: int, how: str) -> Array:
    out = data.copy()
    for at in np.ndindex(indices.shape):
        place = (*at[:axis], indices[at], *at[axis + 1 :])
        out[place] = COMBINE[how](out[place], updates[at])
    return out


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return rng.integers(1, 9, shape).astype(dtype)  # whole numbers: sums do not round


@st.composite
def scatters(draw: Any, reductions: tuple[str, ...] = REDUCTIONS) -> tuple[Any, ...]:
    """Data, indices with duplicates and negative ones, updates, and a reduction."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    depth = draw(st.integers(1, len(shape)))
    leading = tuple(draw(st.lists(st.integers(0, 4), max_size=2)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    low = np.array([-size for size in shape[:depth]])
    indices = rng.integers(low, -low, (*leading, depth))
    data = numbers(rng, shape)
    updates = numbers(rng, (*leading, *shape[depth:]))
    return data, indices.astype(np.int64), updates, draw(st.sampled_from(reductions))


@settings(max_examples=40, deadline=None)
@given(drawn=scatters(), constant=st.booleans())
def test_scatter_nd_writes_in_order_whatever_the_indices(
    host: Target, drawn: tuple[Any, ...], constant: bool
) -> None:
    data, indices, updates, how = drawn
    given = [data, updates] if constant else [data, updates, indices]

    def make(x: relax.Var, u: relax.Var, i: Any = None) -> relax.Expr:
        return relax.op.scatter_nd(x, relax.const(indices) if i is None else i, u, how)

    wanted = expected_nd(data, indices, updates, how)
    np.testing.assert_array_equal(result(host, make, *given), wanted)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), how=st.sampled_from(REDUCTIONS), constant=st.booleans())
def test_scatter_elements_writes_in_order_whatever_the_indices(
    host: Target, data: Any, how: str, constant: bool
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    size = [data.draw(st.integers(1, d)) for d in shape]
    size[axis] = data.draw(st.integers(0, 6))
    indices = rng.integers(-shape[axis], shape[axis], size)
    x, u = numbers(rng, shape), numbers(rng, tuple(size))

    def make(x: relax.Var, u: relax.Var, i: Any = None) -> relax.Expr:
        i = relax.const(indices) if i is None else i
        return relax.op.scatter_elements(x, i, u, axis, how)

    given = [x, u] if constant else [x, u, indices]
    wanted = expected_elements(x, indices, u, axis, how)
    np.testing.assert_array_equal(result(host, make, *given), wanted)


@st.composite
def boxes(draw: Any) -> tuple[tuple[int, ...], Array]:
    """A shape, and the coordinates of every step-th place of a part of it."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    axes = []
    for size in shape:
        start, step = draw(st.integers(0, size - 1)), draw(st.integers(1, 3))
        count = draw(st.integers(1, (size - 1 - start) // step + 1))
        axes.append(np.arange(count) * step + start)
    return shape, np.stack(np.meshgrid(*axes, indexing="ij"), -1).astype(np.int64)


@settings(max_examples=25, deadline=None)
@given(drawn=boxes(), how=st.sampled_from(REDUCTIONS))
def test_a_box_becomes_one_elementwise_kernel(
    host: Target, drawn: tuple[tuple[int, ...], Array], how: str
) -> None:
    shape, indices = drawn
    rng = np.random.default_rng(0)
    x, u = numbers(rng, shape), numbers(rng, indices.shape[:-1])

    def make(x: relax.Var, u: relax.Var) -> relax.Expr:
        return relax.op.scatter_nd(x, relax.const(indices), u, how)

    assert len(lowered(host, make, x, u).calls) <= 1  # a whole box is its updates
    wanted = expected_nd(x, indices, u, how)
    np.testing.assert_array_equal(result(host, make, x, u), wanted)
