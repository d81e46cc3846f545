"""Scatters turned round: the same values as ONNX's own reference, in parallel, on both devices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from support.small_graphs import Make, lowered, results
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


def result(host: Target, make: Make, *inputs: Array, **options: Any) -> Array:
    """What the graph computes on this machine."""
    (found,) = results(host, make, *inputs, **options)
    return found


def expected_nd(data: Array, indices: Array, updates: Array, reduction: str) -> Array:
    """ONNX's ScatterND, one row after the other."""
    out = data.copy()
    rows = indices.reshape(-1, indices.shape[-1])
    for row, new in zip(
        rows, updates.reshape(len(rows), *data.shape[rows.shape[1] :]), strict=True
    ):
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


def kernels(done: pipeline.Lowered) -> list[str]:
    """What is called, without the numbers that tell equal names apart."""
    return [call.kernel.rstrip("0123456789") for call in done.calls]


DATA = np.arange(4 * 6 * 5, dtype=np.float32).reshape(4, 6, 5)


def test_indices_from_ranges_broadcast_and_stacked_are_seen_to_be_a_box(host: Target) -> None:
    def make(x: relax.Var, u: relax.Var) -> relax.Expr:
        op = relax.op
        rows = op.broadcast_to(op.expand_dims(op.arange(1, 3, 1, "int64"), 1), (2, 3))
        columns = op.broadcast_to(op.expand_dims(op.arange(0, 6, 2, "int64"), 0), (2, 3))
        return op.scatter_nd(x, op.stack([rows, columns], axis=2), u)

    updates = -np.ones((2, 3, 5), np.float32)
    assert kernels(lowered(host, make, DATA, updates)) == ["scatter_box"]
    wanted = DATA.copy()
    wanted[1:3, ::2] = updates
    np.testing.assert_array_equal(result(host, make, DATA, updates), wanted)


def test_consecutive_slices_are_one_copy_and_the_later_one_wins(host: Target) -> None:
    """Both ways that exporters write an assignment to a slice."""
    data = np.arange(32 * 7, dtype=np.float32).reshape(32, 7)
    first, second = np.full((32, 3), -1, np.float32), np.full((32, 2), -2, np.float32)
    rows = np.stack(np.meshgrid(np.arange(32), [2, 3], indexing="ij"), -1)

    def make(x: relax.Var, a: relax.Var, b: relax.Var) -> relax.Expr:
        inner = relax.op.slice_scatter(x, a, 0, 3, 1, axis=1)
        return relax.op.scatter_nd(inner, relax.const(rows), b)

    assert kernels(lowered(host, make, data, first, second)) == ["scatter_copy"]
    wanted = data.copy()
    wanted[:, :3], wanted[:, 2:4] = first, second
    np.testing.assert_array_equal(result(host, make, data, first, second), wanted)


WIDE = np.linspace(-3, 3, 40 * 7, dtype=np.float32).reshape(40, 7)


def assign(y: relax.Expr, part: relax.Expr) -> relax.Expr:
    """y[:, 1:3] = part, as exporters write it."""
    rows = np.stack(np.meshgrid(np.arange(40), [1, 2], indexing="ij"), -1)
    return relax.op.scatter_nd(y, relax.const(rows), part)


def writes_in_place(done: pipeline.Lowered) -> bool:
    """The copying kernel has the result as a parameter of its own."""
    return len(done.module["scatter_copy"].params) == 2


def doubled(y: relax.Expr) -> relax.Expr:
    return relax.op.multiply(relax.op.strided_slice(y, [1], [1], [3]), relax.const(2.0))


def test_on_a_cpu_a_value_that_is_not_read_again_is_written_in_place(host: Target) -> None:
    def make(x: relax.Var) -> relax.Expr:
        y = relax.BlockBuilder.current().emit(relax.op.sigmoid(x))
        done = relax.BlockBuilder.current().emit(assign(y, doubled(y)))
        return relax.op.matmul(relax.op.permute_dims(done), done)  # room that must not be its own

    assert writes_in_place(lowered(host, make, WIDE))
    wanted = 1 / (1 + np.exp(-WIDE))
    wanted[:, 1:3] *= 2
    np.testing.assert_allclose(result(host, make, WIDE), wanted.T @ wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda x, emit: assign(x, doubled(x)),
        lambda x, emit: relax.op.subtract(assign(y := emit(relax.op.sigmoid(x)), doubled(y)), y),
        lambda x, emit: relax.op.concat(
            [
                relax.op.reshape(emit(assign(y := emit(relax.op.sigmoid(x)), doubled(y))), (280,)),
                emit(relax.op.reshape(y, (280,))),
            ]
        ),
        lambda x, emit: assign(relax.op.reshape(x, (40, 7)), doubled(x)),
    ],
    ids=[
        "an argument",
        "read later",
        "read later in another shape",
        "an argument in another shape",
    ],
)
def test_on_a_cpu_a_value_that_is_still_needed_is_copied(host: Target, make: Any) -> None:
    def graph(x: relax.Var) -> relax.Expr:
        return make(x, relax.BlockBuilder.current().emit)

    assert not writes_in_place(lowered(host, graph, WIDE))
    given = WIDE.copy()
    plain = result(host, graph, given, disabled_passes=("fast-scatter",))
    np.testing.assert_array_equal(result(host, graph, given), plain)
    np.testing.assert_array_equal(given, WIDE)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_index_put_broadcasts_and_accumulates_duplicates(
    host: Target, accumulate: bool, constant: bool
) -> None:
    indices = [np.array([[0], [3], [-4]]), np.array([1, 5]), np.array([2])]
    values = np.array([[10.0], [20.0], [30.0]], np.float32)
    given = [DATA, values] if constant else [DATA, values, *indices]

    def make(x: relax.Var, v: relax.Var, *i: relax.Var) -> relax.Expr:
        return relax.op.index_put(x, i or [relax.const(a) for a in indices], v, accumulate)

    wanted = DATA.copy()
    if accumulate:
        np.add.at(wanted, tuple(indices), values)
    else:
        wanted[tuple(indices)] = values
    np.testing.assert_array_equal(result(host, make, *given), wanted)


def test_half_precision_keeps_its_type(host: Target) -> None:
    data, updates = DATA.astype("float16"), np.full((2, 6, 5), -1, "float16")

    def make(x: relax.Var, u: relax.Var) -> relax.Expr:
        return relax.op.scatter_nd(x, relax.const(np.array([[3], [0]])), u, "max")

    wanted = DATA.astype("float16")
    found = result(host, make, data, updates)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "make",
    [
        lambda x, u: relax.op.scatter_nd(x, relax.const(np.array([[0], [4]])), u),
        lambda x, u: relax.op.scatter_elements(
            x, relax.const(np.zeros((2, 6, 5), np.int64)), u, 0, "mean"
        ),
    ],
    ids=["an index outside", "a reduction that ONNX lacks"],
)
def test_what_is_not_understood_stays_with_tvm(host: Target, make: Make) -> None:
    done = lowered(host, make, DATA, np.ones((2, 6, 5), np.float32))
    assert all(name.startswith(("scatter_nd", "scatter_elements")) for name in kernels(done))


def test_the_variant_tvm_never_has_the_pass(host: Target) -> None:
    steps = pipeline.select(CompileOptions(pipeline="tvm"), host)
    assert not [step.name for step in steps if "scatter" in step.name]


def threads(module: tvm.IRModule, name: str) -> list[int]:
    """Of each launch in a kernel: how many threads it has."""
    text = module[name].script()
    extent = r"(?:T\.int64\()?(\d+)"
    blocks = re.findall(rf'launch_thread\("blockIdx.x", {extent}', text)
    blocks += re.findall(rf'thread_binding\({extent}\)?, thread="blockIdx.x"', text)
    inside = re.findall(rf'launch_thread\("threadIdx.x", {extent}', text)
    inside += re.findall(rf'thread_binding\({extent}\)?, thread="threadIdx.x"', text)
    return [int(b) * int(t) for b, t in zip(blocks, inside, strict=True)]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("how", ["update", "add"])
def test_on_a_gpu_every_kernel_has_a_thread_for_each_element_or_update(
    how: str, dtype: str
) -> None:
    data, updates = np.zeros((64, 33), dtype), np.zeros((500, 33), dtype)
    indices = np.zeros((500, 1), np.int64)

    def make(x: relax.Var, u: relax.Var, i: relax.Var) -> relax.Expr:
        return relax.op.scatter_nd(x, i, u, how)

    done = lowered(targets.resolve("cuda:sm_90"), make, data, updates, indices)
    names = kernels(done)
    last = "scatter_rows" if how == "update" else "scatter_fold"
    assert names == ["scatter_places", "scatter_table", last]
    clear, mark = threads(done.module, "scatter_table")
    assert clear >= 64
    assert mark >= 500
    assert all(threads(done.module, name)[0] >= 500 for name in (names[0], last))


def test_a_gather_has_a_thread_for_each_element(host: Target) -> None:
    data, indices = np.zeros((64, 33), np.float32), np.zeros((500, 1), np.int64)

    def make(x: relax.Var, i: relax.Var) -> relax.Expr:
        return relax.op.gather_nd(x, i)

    on_gpu = lowered(targets.resolve("cuda:sm_90"), make, data, indices)
    (name,) = kernels(on_gpu)
    assert threads(on_gpu.module, name)[0] >= 500 * 33
    on_cpu = lowered(host, make, data, indices)
    (name,) = kernels(on_cpu)
    assert "T.parallel" in on_cpu.module[name].script()


def test_on_a_gpu_a_box_fuses_with_what_surrounds_it() -> None:
    rows = np.stack(np.meshgrid(*(np.arange(n) for n in (4, 6, 2)), indexing="ij"), -1)

    def make(x: relax.Var) -> relax.Expr:
        whole, part = relax.op.sigmoid(x), relax.op.strided_slice(x, [2], [0], [2])
        return relax.op.scatter_nd(whole, relax.const(rows), relax.op.exp(part))

    done = lowered(targets.resolve("cuda:sm_90"), make, DATA)
    assert len(done.calls) == 1
