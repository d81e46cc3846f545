"""The rule for matmuls: right on odd shapes, and only taken where it applies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tvm import te

from support.operators import matmul
from support.paired_graph import Graph, Node, drawn
from tvmscope.compiler import targets
from tvmscope.compiler.cost import tiles
from tvmscope.compiler.cost.ports import ports
from tvmscope.compiler.kernels import blocked
from tvmscope.compiler.schedules.cpu.matmul_chunks import outruns, schedule_chunks
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
    rows = case.rows if case.rows > 1 or not case.constant else max(case.batch, default=1)
    height = tiles.rows(rows, target)
    chunks = height < rows and outruns(height, target)
    rule = "matmul-chunks" if chunks else "matmul"
    assert sorted(r or "" for r in ran.rules.values()) == [rule, *packing]


@drawn(20)
@given(MATMULS)
def test_drawn_matmuls_match_pytorch(host: Target, case: Matmul) -> None:
    check(case, host)


@drawn(10)
@given(MATMULS)
def test_drawn_matmuls_match_pytorch_with_fewer_registers(narrow: Target, case: Matmul) -> None:
    check(case, narrow)


@drawn(10)
@given(MATMULS)
def test_drawn_matmuls_match_pytorch_in_chunks(wide: Target, case: Matmul) -> None:
    check(case, wide)


@pytest.mark.slow
@drawn(200)
@given(MATMULS)
def test_many_drawn_matmuls_match_pytorch(
    host: Target, narrow: Target, wide: Target, case: Matmul
) -> None:
    check(case, host)
    check(case, narrow)
    check(case, wide)


@pytest.mark.parametrize("cores", [1, 2, 3, 16])
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "depth"),
    [((), 197, 70, 768), ((2,), 128, 384, 96), ((), 53, 33, 1031), ((3, 2), 37, 37, 64)],
)
def test_chunks_are_right_for_any_number_of_cores(
    batch: tuple[int, ...], rows: int, columns: int, depth: int, cores: int, wide: Target
) -> None:
    case = Matmul(batch, rows, columns, depth, constant=not batch, epilogues=("bias", "gelu"))
    check(case, replace(wide, cores=cores))


def test_all_rows_pass_by_a_chunk_of_a_panel_that_stays_in_the_first_level_cache() -> None:
    target = replace(targets.resolve("cpu:emeraldrapids"), cores=1)
    panel, core = tiles.panel(target), ports(target)
    x, w = te.placeholder((198, 768), name="x"), te.placeholder((96, 768, panel), name="w")
    function = te.create_prim_func([x, w, blocked.matmul(x, w, 3072, 198, "float32")])
    sch = schedule_chunks(function, target)
    assert sch is not None
    loops = [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock("matmul_update"))]
    shares, groups, panels, chunks, rows, *_ = loops
    assert (shares, groups, panels, rows * 9) == (1, 1, 96, 198)
    assert 4 * panel * 768 // chunks <= core.l1_bytes // 2
    assert schedule_chunks(function, replace(target, arch="znver4")) is None


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
