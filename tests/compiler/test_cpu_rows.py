"""The rule for softmax and layer norm: right on odd shapes and values, only where it applies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from support.operators import guarded_softmax, log_softmax, softmax
from support.paired_graph import Graph, Node, drawn
from tvmscope.core.target import Target

SHAPES = st.tuples(
    st.lists(st.sampled_from((1, 2, 3, 5)), min_size=1, max_size=3),
    st.one_of(st.integers(1, 70), st.sampled_from((128, 197, 256))),
).map(lambda drawn_: (*drawn_[0], drawn_[1]))
EPILOGUES = st.lists(st.sampled_from(("scale", "residual", "silu", "bias")), max_size=2)


def layer_norm(graph: Graph, x: Node) -> Node:
    n = x.value.shape[-1]
    return graph.apply(
        lambda v, g, b: relax.op.nn.layer_norm(v, g, b, axes=[-1], epsilon=1e-5),
        lambda v, g, b: nnf.layer_norm(v, (n,), g, b, 1e-5),
        x,
        graph.constant(graph.random(n)),
        graph.constant(graph.random(n)),
    )


@drawn(25)
@given(SHAPES, EPILOGUES, st.sampled_from((softmax, guarded_softmax, log_softmax, layer_norm)))
def test_drawn_rows_match_pytorch(
    host: Target, shape: tuple[int, ...], epilogues: list[str], build: object
) -> None:
    graph = Graph()
    result = build(graph, graph.input(*shape))  # type: ignore[operator]
    for name in epilogues:
        result = graph.epilogue(result, name)
    ran = graph.check(result, target=host)
    assert len(ran.taken_by("rows")) == 1
    assert ran.taken_by(None) == []


@drawn(8)
@given(SHAPES)
def test_drawn_rows_match_pytorch_with_narrow_vectors(
    narrow: Target, shape: tuple[int, ...]
) -> None:
    graph = Graph()
    ran = graph.check(layer_norm(graph, softmax(graph, graph.input(*shape))), target=narrow)
    assert len(ran.taken_by("rows")) == 2


def compare_odd_values(build: object, x: torch.Tensor, target: Target) -> None:
    graph = Graph()
    node = build(graph, graph.input_of(x))  # type: ignore[operator]
    ran = graph.run(node, target=target)
    assert len(ran.taken_by("rows")) == 1
    np.testing.assert_allclose(ran.outputs[0], node.value.numpy(), rtol=2e-6, atol=1e-7)


def odd_values() -> torch.Tensor:
    x = torch.randn(6, 37, generator=torch.Generator().manual_seed(1))
    x[0] = -torch.inf
    x[1, 5] = torch.nan
    x[2, ::2] = -torch.inf
    x[3] = torch.finfo(torch.float32).min  # how models mask a whole row without -inf
    x[4] *= 1e4
    return x


@pytest.mark.parametrize("build", [softmax, guarded_softmax, log_softmax])
def test_empty_rows_and_nan_come_out_as_in_pytorch(build: object, host: Target) -> None:
    compare_odd_values(build, odd_values(), host)


def test_a_guard_with_another_value_is_kept(host: Target) -> None:
    x = odd_values()
    x[1, 5] = 0
    compare_odd_values(lambda g, v: guarded_softmax(g, v, empty=0.25), x, host)


@pytest.mark.parametrize("build", [softmax, log_softmax])
def test_softmax_over_another_axis_is_declined(build: object, host: Target) -> None:
    graph = Graph()
    ran = graph.check(build(graph, graph.input(3, 5, 7), axis=1), target=host)  # type: ignore[operator]
    assert ran.taken_by("rows") == []


def test_layer_norm_over_two_axes_is_one_row(host: Target) -> None:
    graph = Graph()
    ran = graph.check(
        graph.apply(
            lambda v, g, b: relax.op.nn.layer_norm(v, g, b, axes=[-2, -1]),
            lambda v, g, b: nnf.layer_norm(v, (5, 7), g, b, 1e-5),
            graph.input(3, 5, 7),
            graph.constant(graph.random(5, 7)),
            graph.constant(graph.random(5, 7)),
        ),
        target=host,
    )
    assert ran.taken_by("rows") == ["layer_norm"]


def test_half_precision_is_computed_in_float32_and_rounded_once(host: Target) -> None:
    graph = Graph()
    x = graph.random(3, 17).to(torch.float16)
    ran = graph.run(softmax(graph, graph.input_of(x)), target=host)
    assert len(ran.taken_by("rows")) == 1
    assert ran.outputs[0].dtype == np.float16
    exact = torch.softmax(x.double(), -1).numpy()
    np.testing.assert_allclose(ran.outputs[0], exact, rtol=2**-11 + 1e-6)
