"""Attention as one kernel: right on odd shapes and masks, and only where it is attention."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from support.operators import guarded_softmax, matmul, softmax
from support.paired_graph import Graph, Node, drawn
from tvmscope.core.target import Target


@dataclass(frozen=True)
class Attention:
    """A (batch, heads) grid of softmax(q @ k + mask) @ v."""

    batch: int
    heads: int
    rows: int
    columns: int
    depth: int
    width: int
    mask: tuple[bool, bool, bool] | None
    """Which of batch, heads and rows the mask tells apart."""
    guarded: bool
    flat: bool
    """Whether batch and heads are one axis for the matmuls."""
    epilogues: tuple[str, ...] = ()

    def build(self, graph: Graph) -> Node:
        """The graph's result."""
        grid = (self.batch * self.heads,) if self.flat else (self.batch, self.heads)
        q = graph.input(*grid, self.rows, self.depth)
        k = graph.input(*grid, self.depth, self.columns)
        v = graph.input(*grid, self.columns, self.width)
        scores = matmul(graph, q, k)
        if self.flat:
            scores = graph.reshape(scores, self.batch, self.heads, self.rows, self.columns)
        if self.mask is not None:
            full = (self.batch, self.heads, self.rows)
            shape = [n if told else 1 for n, told in zip(full, self.mask, strict=True)]
            scores = graph.add(scores, graph.input(*shape, self.columns))
        weights = (guarded_softmax if self.guarded else softmax)(graph, scores)
        if self.flat:
            weights = graph.reshape(weights, *grid, self.rows, self.columns)
        result = matmul(graph, weights, v)
        for name in self.epilogues:
            result = graph.epilogue(result, name)
        return result


SIZES = st.one_of(st.integers(1, 40), st.sampled_from((64, 128, 197)))
ATTENTIONS = st.builds(
    Attention,
    batch=st.sampled_from((1, 2)),
    heads=st.sampled_from((1, 3)),
    rows=SIZES,
    columns=SIZES,
    depth=st.integers(1, 40),
    width=st.integers(1, 70),
    mask=st.one_of(st.none(), st.tuples(*[st.booleans()] * 3)),
    guarded=st.booleans(),
    flat=st.booleans(),
    epilogues=st.lists(st.sampled_from(("scale", "residual", "bias")), max_size=2).map(tuple),
)


@drawn(25)
@given(ATTENTIONS)
def test_drawn_attention_matches_pytorch(host: Target, case: Attention) -> None:
    graph = Graph()
    ran = graph.check(case.build(graph), target=host)
    assert len(ran.taken_by("attention")) == 1
    assert ran.taken_by("matmul") == ran.taken_by(None) == []


@drawn(8)
@given(ATTENTIONS)
def test_drawn_attention_matches_pytorch_with_fewer_registers(
    narrow: Target, case: Attention
) -> None:
    graph = Graph()
    assert graph.check(case.build(graph), target=narrow).taken_by("attention")


def test_a_row_that_is_masked_out_gives_zeros(host: Target) -> None:
    graph = Graph()
    mask = torch.zeros(1, 1, 5, 7)
    mask[..., 3, :] = -torch.inf
    scores = graph.add(graph.input(2, 3, 5, 7), graph.input_of(mask))
    x = guarded_softmax(graph, scores)
    assert (x.value[..., 3, :] == 0).all()
    graph.check(matmul(graph, x, graph.input(2, 3, 7, 4)), target=host)


@pytest.mark.parametrize("kind", ["other axis", "three dimensions", "broadcast batch"])
def test_what_is_not_attention_is_declined(kind: str, host: Target) -> None:
    graph = Graph()
    scores = matmul(graph, graph.input(3, 6, 8), graph.input(3, 8, 6))
    if kind == "three dimensions":
        scores = graph.add(scores, graph.input(1, 6, 6))
    weights = softmax(graph, scores, axis=1 if kind == "other axis" else -1)
    values = graph.input(*(() if kind == "broadcast batch" else (3,)), 6, 4)
    ran = graph.check(matmul(graph, weights, values), target=host)
    assert ran.taken_by("attention") == []


def test_scores_that_are_an_output_too_stay_one(host: Target) -> None:
    graph = Graph()
    scores = matmul(graph, graph.input(3, 6, 8), graph.input(3, 8, 9))
    result = matmul(graph, softmax(graph, scores), graph.input(3, 9, 4))
    graph.check(scores, result, target=host)


def test_a_transposed_key_is_packed_by_one_kernel(host: Target) -> None:
    graph = Graph()
    key = graph.input(1, 13, 3, 8)
    turned = graph.apply(
        lambda v: relax.op.permute_dims(relax.op.permute_dims(v, [0, 2, 1, 3]), [0, 1, 3, 2]),
        lambda v: v.permute(0, 2, 3, 1),
        key,
    )
    scores = matmul(graph, graph.input(1, 3, 11, 8), graph.epilogue(turned, "scale"))
    result = matmul(graph, softmax(graph, scores), graph.input(1, 3, 13, 5))
    ran = graph.check(result, target=host)
    assert len([name for name in ran.rules if "transpose" in name]) == 1
