"""The rule for everything else: right on odd shapes, and it leaves alone what it cannot read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as nnf
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from support.paired_graph import Graph, drawn
from tvmscope.compiler import pipeline, targets
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target

Pair = tuple[Callable[..., Any], Callable[..., Any]]
op = relax.op


ONE: dict[str, Pair] = {
    "relu": (op.nn.relu, torch.relu),
    "sum of all": (lambda v: op.sum(v), lambda v: v.sum()),
    "sum of the first": (lambda v: op.sum(v, [0]), lambda v: v.sum(0)),
    "sum of the last": (lambda v: op.sum(v, [-1]), lambda v: v.sum(-1)),
    "largest of the last": (lambda v: op.max(v, [-1], True), lambda v: v.amax(-1, True)),
    "index of the largest": (lambda v: op.argmax(v, -1), lambda v: v.argmax(-1)),
    "softmax over the first": (lambda v: op.nn.softmax(v, 0), lambda v: v.softmax(0)),
    "log softmax over the first": (lambda v: op.nn.log_softmax(v, 0), lambda v: v.log_softmax(0)),
    "variance": (lambda v: op.variance(v, [-1]), lambda v: v.var(-1, correction=0)),
    "transpose": (op.permute_dims, lambda v: v.permute(*range(v.ndim - 1, -1, -1))),
    "flatten": (lambda v: op.reshape(v, (-1,)), lambda v: v.reshape(-1)),
    "every second": (
        lambda v: op.strided_slice(v, [-1], [0], [int(v.ty.shape[-1])], [2]),
        lambda v: v[..., ::2],
    ),
    "padding": (
        lambda v: op.nn.pad(v, [1, 2] * len(v.ty.shape), "constant", 0.5),
        lambda v: nnf.pad(v, [1, 2] * v.ndim, value=0.5),
    ),
    "centring": (
        lambda v: op.subtract(v, op.mean(v, [-1], keepdims=True)),
        lambda v: v - v.mean(-1, keepdim=True),
    ),
}
MOVED = ("transpose", "flatten", "every second", "padding")
ELSEWHERE = {"sum of all": ("reduction",)} | dict.fromkeys(MOVED, ("movement",))
"""What a rule of its own may take, where the shape fits."""
EXTENT = st.sampled_from((1, 2, 3, 5, 7, 8, 13, 16, 31, 64))
SHAPES = st.lists(EXTENT, min_size=1, max_size=4).filter(lambda s: torch.Size(s).numel() < 50_000)


def check(name: str, shape: list[int], target: Target) -> None:
    graph = Graph()
    ran = graph.check(graph.apply(*ONE[name], graph.input(*shape)), target=target)
    assert set(ran.rules.values()) <= {"fallback", *ELSEWHERE.get(name, ())}


@pytest.mark.parametrize("name", ONE)
def test_operators_match_pytorch_on_a_prime_shape(name: str, host: Target) -> None:
    check(name, [3, 5, 13], host)


@drawn(25)
@given(st.sampled_from(list(ONE)), SHAPES)
def test_operators_match_pytorch(host: Target, name: str, shape: list[int]) -> None:
    check(name, shape, host)


@pytest.mark.slow
@drawn(400)
@given(st.sampled_from(list(ONE)), SHAPES)
def test_operators_match_pytorch_on_many_shapes(
    host: Target, narrow: Target, name: str, shape: list[int]
) -> None:
    check(name, shape, host)
    check(name, shape, narrow)


@drawn(25)
@given(SHAPES, st.data())
def test_broadcasts_match_pytorch(narrow: Target, shape: list[int], data: st.DataObject) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    dropped = data.draw(st.integers(0, len(shape)))
    other = [extent if kept else 1 for extent, kept in zip(shape, keep, strict=True)][dropped:]
    graph = Graph()
    x, y = graph.input(*shape), graph.input(*other)
    ran = graph.check(graph.apply(op.maximum, torch.maximum, x, y), target=narrow)
    assert set(ran.rules.values()) == {"fallback"}


def test_a_sum_in_bfloat16_is_built_for_a_cpu_without_it(narrow: Target) -> None:
    graph = Graph()
    x, y = (graph.input_of(graph.random(5, *rest).bfloat16()) for rest in ((2, 3), (3, 4)))
    product = graph.apply(
        lambda a, b: op.einsum([a, b], "bij,bjk->bik"),
        lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        x,
        y,
    )
    tvm_target = tvm.target.Target(targets.to_tvm(narrow))
    lowered = pipeline.run(graph.module(product), narrow, tvm_target, CompileOptions())
    machine = relax.VirtualMachine(
        relax.build(lowered.module, tvm_target, relax_pipeline=None), tvm.cpu()
    )
    given = [tvm.runtime.from_dlpack(node.value) for node in (x, y)]
    got = torch.from_dlpack(machine["main"](*given))
    torch.testing.assert_close(got, product.value, rtol=0.02, atol=0.02)


INDICES = torch.arange(21).reshape(7, 3) % 11
SEVERAL: dict[str, tuple[Pair, tuple[torch.Tensor, ...]]] = {
    "take": (
        (lambda v, i: op.take(v, i, axis=0), lambda v, i: v[i]),
        (torch.randn(11, 5), torch.tensor([3, 0, 10, 3])),
    ),
    "gather": (
        (lambda v, i: op.gather_elements(v, i, 1), lambda v, i: v.gather(1, i)),
        (torch.randn(7, 11), INDICES),
    ),
    "where": (
        (op.where, torch.where),
        (torch.arange(77).reshape(7, 11) % 3 == 0, torch.randn(7, 11), torch.randn(11)),
    ),
    "less": ((op.less, torch.lt), (torch.randn(7, 11), torch.randn(11))),
    "int8": (
        (op.maximum, torch.maximum),
        (torch.arange(77, dtype=torch.int8).reshape(7, 11), torch.full((11,), 30).to(torch.int8)),
    ),
    "int64": ((op.add, torch.add), (torch.arange(77).reshape(7, 11), torch.full((1,), 1 << 40))),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_operators_of_several_values_match_pytorch(name: str, host: Target) -> None:
    graph = Graph()
    pair, values = SEVERAL[name]
    ran = graph.check(graph.apply(*pair, *(graph.input_of(v) for v in values)), target=host)
    assert set(ran.rules.values()) == {"movement" if name in ("take", "gather") else "fallback"}


OPAQUE: dict[str, Pair] = {
    "sort": (lambda v: op.sort(v, 1), lambda v: v.sort(1).values),
    "cumsum": (lambda v: op.cumsum(v, 1), lambda v: v.cumsum(1)),
    "topk": (lambda v: op.topk(v, 3, 1, "values"), lambda v: v.topk(3, 1).values),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_functions_without_blocks_are_left_alone_and_right(name: str, host: Target) -> None:
    graph = Graph()
    theirs = CompileOptions(disabled_passes=("fast-select",))  # its topk has blocks
    ran = graph.check(graph.apply(*OPAQUE[name], graph.input(7, 13)), target=host, options=theirs)
    assert list(ran.rules.values()) == [None]
