"""The rule for matmuls: right on odd shapes, and only taken where it applies."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tvm import te

from support.operators import matmul
from support.paired_graph import Graph, Node, drawn
from tvmscope.compiler.kernels import blocked
from tvmscope.core.target import Target

EPILOGUES = ("bias", "gelu", "relu", "residual", "silu", "scale")


@dataclass(frozen=True)
class Matmul:
    """(*batch, rows, depth) times (*batch, depth, columns) or a constant (depth, columns)."""

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    constant: bool
    epilogues: tuple[str, ...] = ()

    def build(self, graph: Graph) -> Node:
        """The graph's result."""
        x = graph.input(*self.batch, self.rows, self.depth)
        if self.constant:
            weight = graph.random(self.depth, self.columns, scale=self.depth**-0.5)
            y = graph.constant(weight)
        else:
            y = graph.input(*self.batch, self.depth, self.columns)
        result = matmul(graph, x, y)
        for name in self.epilogues:
            result = graph.epilogue(result, name)
        return result


EXTENTS = st.one_of(st.integers(1, 70), st.sampled_from((1, 2, 13, 16, 31, 47, 61, 67, 128, 256)))
MATMULS = st.builds(
    Matmul,
    batch=st.sampled_from([(), (1,), (3,), (2, 5)]),
    rows=EXTENTS,
    columns=EXTENTS,
    depth=EXTENTS,
    constant=st.booleans(),
    epilogues=st.lists(st.sampled_from(EPILOGUES), max_size=3).map(tuple),
)


def check(case: Matmul, target: Target) -> None:
    graph = Graph()
    ran = graph.check(case.build(graph), target=target)
    packing = [] if case.constant else ["movement"]  # what is computed is packed first
    assert sorted(r or "" for r in ran.rules.values()) == ["matmul", *packing]


@drawn(20)
@given(MATMULS)
def test_drawn_matmuls_match_pytorch(host: Target, case: Matmul) -> None:
    check(case, host)


@drawn(10)
@given(MATMULS)
def test_drawn_matmuls_match_pytorch_with_fewer_registers(narrow: Target, case: Matmul) -> None:
    check(case, narrow)


@pytest.mark.slow
@drawn(200)
@given(MATMULS)
def test_many_drawn_matmuls_match_pytorch(host: Target, narrow: Target, case: Matmul) -> None:
    check(case, host)
    check(case, narrow)


ODD = {
    "one number": Matmul((), 1, 1, 1, constant=False),
    "a row": Matmul((), 1, 67, 31, constant=True, epilogues=("bias", "gelu")),
    "a column": Matmul((3,), 67, 1, 31, constant=True, epilogues=("bias",)),
    "an outer product": Matmul((3,), 13, 17, 1, constant=False),
    "deep": Matmul((), 5, 7, 1024, constant=True, epilogues=("bias", "residual")),
    "attention": Matmul((2, 3), 37, 37, 11, constant=False, epilogues=("scale",)),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_shapes_match_pytorch(name: str, host: Target) -> None:
    check(ODD[name], host)


DECLINED = {
    "a vector times a matrix": ((31,), (31, 17)),
    "a matrix times a vector": ((13, 31), (31,)),
    "two vectors": ((31,), (31,)),
    "broadcast batches": ((1, 3, 7, 31), (2, 1, 31, 17)),
    "a computed matrix for every batch": ((3, 7, 31), (31, 17)),
}


@pytest.mark.parametrize("name", DECLINED)
def test_other_forms_are_declined_and_right(name: str, host: Target) -> None:
    graph = Graph()
    left, right = DECLINED[name]
    ran = graph.check(matmul(graph, graph.input(*left), graph.input(*right)), target=host)
    assert list(ran.rules.values()) == ["fallback"]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64])
def test_other_types_are_declined_and_right(dtype: torch.dtype, host: Target) -> None:
    graph = Graph()
    x = graph.input_of((graph.random(7, 31) * 100).to(dtype))
    y = graph.constant((graph.random(31, 13) * 100).to(dtype))
    ran = graph.check(matmul(graph, x, y), target=host)
    assert list(ran.rules.values()) == ["fallback"]


def test_a_result_that_is_used_twice_is_computed_once(host: Target) -> None:
    graph = Graph()
    x = matmul(graph, graph.input(7, 31), graph.constant(graph.random(31, 31)))
    ran = graph.check(graph.add(graph.relu(x), x), x, target=host)
    assert ran.taken_by("matmul") == ["matmul"]


@pytest.mark.parametrize("batch", [(50,), (1, 50), (50, 1)], ids=str)
def test_one_row_in_each_batch_are_rows_of_one_product(
    batch: tuple[int, ...], host: Target
) -> None:
    check(Matmul(batch, 1, 70, 32, constant=True, epilogues=("bias", "gelu")), host)
    data, panels = te.placeholder((*batch, 1, 32)), te.placeholder((3, 32, 32))
    result = blocked.matmul(data, panels, columns=70, computed_rows=50, out_dtype="float32")
    assert [int(d) for d in result.shape] == [*batch, 1, 70]
    (product,) = result.op.input_tensors
    assert [int(d) for d in product.shape][-2:] == [50, 96]
