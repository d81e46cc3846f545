"""The schedules of our own for GPUs: their numbers on odd shapes, and the code that they become.

Threads run one after the other on the CPU here; `scripts/tir_kernels.py` checks the compiled
kernels on a GPU.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relax, s_tir, te, tirx, topi

from support import gpu_functions, graph_passes, serial_kernels
from tvmscope.compiler import pipeline, targets
from tvmscope.compiler.codegen.shares import UNCHECKED
from tvmscope.compiler.schedules.cuda import elements, gemm, rows, windows
from tvmscope.compiler.schedules.cuda.products import find_product
from tvmscope.compiler.schedules.cuda.tiles import Tile, Work, choose
from tvmscope.core.options import CompileOptions
from tvmscope.cuda.gpus import GPUS

SM_90 = targets.resolve("cuda:sm_90")
SMALL = {"rows": 32, "columns": 32, "terms": 32, "warps": (2, 2), "stages": 3}
H = "float16"
Schedule = Callable[..., s_tir.Schedule | None]
RULES: dict[str, Schedule] = {
    "elements": elements.schedule_elements,
    "window": windows.schedule_windows,
    "rows": rows.schedule_rows,
}


def drawn(func: tirx.PrimFunc) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = [([int(d) for d in p.ty.shape], str(p.ty.dtype)) for p in func.params]
    return [(rng.standard_normal(shape) / 4).astype(dtype) for shape, dtype in shapes]


def error(func: tirx.PrimFunc, sch: s_tir.Schedule) -> float:
    """The largest difference from the function as it is written, of its largest value."""
    found, plain = drawn(func), drawn(func)
    serial_kernels.run(sch, found)
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    tensors = [tvm.runtime.tensor(array) for array in plain]
    tvm.tirx.build(module, target={"kind": "llvm"})["main"](*tensors)
    wanted = tensors[-1].numpy().astype(np.float64)
    return float(np.abs(found[-1] - wanted).max() / max(1e-9, np.abs(wanted).max()))


def source(sch: s_tir.Schedule) -> str:
    target = tvm.target.Target(targets.to_tvm(SM_90), host={"kind": "llvm"})
    func = sch.mod["main"].with_attr("global_symbol", "main")
    with target, tvm.transform.PassContext(opt_level=3, config=UNCHECKED):
        built = tvm.tirx.build(tvm.IRModule({"main": func}), target=target)
    return str(built.imports[0].inspect_source())


PRODUCTS = {
    "strided": (gpu_functions.convolution((1, 9, 7, 16), 24, stride=2, padding=(1, 1, 1, 1)), 1),
    "dilated": (
        gpu_functions.convolution(
            (2, 9, 11, 8), 20, padding=(1, 2, 0, 1), dilation=2, residual=True
        ), 2,
    ),
    "three channels": (gpu_functions.convolution((1, 13, 13, 3), 33, (5, 5), stride=2), 1),
    "one row": (gpu_functions.product(1, 40, 48), 1),
    "many": (gpu_functions.product(13, 17, 19, batch=3, transposed=True), 1),
    "one of many": (gpu_functions.product(13, 24, 64, batch=1, out="float32"), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_tiles_of_products_give_the_numbers_of_the_loops(name: str) -> None:
    func, parts = PRODUCTS[name]
    product = find_product(func)
    assert product is not None
    sch = gemm.schedule_tile(product, Tile(**SMALL, parts=parts), tensorize=False)
    assert error(func, sch) < 4e-3  # the loops add in halves


def test_all_threads_copy_whole_tiles() -> None:
    """A copy that is placed before its memory is shared holds the part of one warp alone."""
    product = find_product(gpu_functions.product(64, 64, 64))
    assert product is not None
    sch = gemm.schedule_tile(product, Tile(**SMALL))
    for name in ("left", "right"):
        block = sch.get(sch.get_sblock(name))
        copied = [int(sch.get(loop).extent) for loop in sch.get_loops(sch.get_sblock(name))[5:]]
        assert np.prod(copied) == 32 * 32, (block.name_hint, copied)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="CUDA code is compiled by nvcc")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_use_tensor_cores_and_asynchronous_copies(dtype: str, transposed: bool) -> None:
    func = gpu_functions.product(197, 256, 512, dtype=dtype, out=dtype, transposed=transposed)
    sch = gemm.schedule_gemm(func, SM_90)
    assert sch is not None
    text = source(sch)
    assert re.search(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32", text)
    assert "ldmatrix.sync" in text
    assert "cp.async.cg.shared.global" in text
    assert "*(uint4*)" in text


def test_products_of_other_kinds_are_left_to_other_rules() -> None:
    single = gpu_functions.product(64, 64, 64, dtype="float32", out="float32")
    short = gpu_functions.product(64, 64, 8)
    narrow = gpu_functions.product(64, 4, 64)
    for func in (single, short, narrow):
        assert gemm.schedule_gemm(func, SM_90) is None
    assert (
        gemm.schedule_gemm(gpu_functions.product(64, 64, 64), targets.resolve("cuda:sm_75")) is None
    )


def test_few_rows_get_small_tiles_and_many_large_ones() -> None:
    few = choose(Work(batch=1, rows=49, columns=512, terms=4608), GPUS["sm_90"])
    many = choose(Work(batch=1, rows=8192, columns=4096, terms=4096), GPUS["sm_90"])
    assert few.parts > 1
    assert many.parts == 1
    assert many.rows * many.columns >= 64 * 128


@pytest.mark.parametrize("kind", RULES)
def test_each_rule_gives_the_numbers_of_the_loops(kind: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(6):
        func = gpu_functions.KINDS[kind](rng)
        sch = RULES[kind](func, SM_90)
        if sch is None:
            continue  # a row that is too short for a warp, a window without vectors
        assert error(func, sch) < 2e-3


def test_elements_are_moved_in_vectors_of_16_bytes() -> None:
    x, y = (te.placeholder((3, 5, 40), "float16", name=n) for n in "xy")
    sch = elements.schedule_elements(te.create_prim_func([x, y, topi.add(x, y)]), SM_90)
    assert sch is not None
    assert "vectorized(8)" in sch.mod["main"].script()


def test_rows_that_do_not_fill_vectors_and_truth_values_stay_single() -> None:
    x, y = (te.placeholder((3, 5, 7), "float16", name=n) for n in "xy")
    odd = elements.schedule_elements(te.create_prim_func([x, y, topi.add(x, y)]), SM_90)
    assert odd is not None
    assert "vectorized" not in odd.mod["main"].script()
    x = te.placeholder((3, 64), "float16", name="x")
    leaky = elements.schedule_elements(te.create_prim_func([x, topi.nn.leaky_relu(x, 0.1)]), SM_90)
    assert leaky is not None
    assert "vectorized(4)" in leaky.mod["main"].script()


@pytest.mark.parametrize("scale", [False, True])
def test_single_values_between_halves_are_in_vectors_of_four(scale: bool) -> None:
    func = gpu_functions.hard_swish(3, 40, scale=scale)
    sch = elements.schedule_elements(func, SM_90)
    assert sch is not None
    assert "vectorized(4)" in sch.mod["main"].script()
    assert error(func, sch) < 2e-3


@pytest.mark.parametrize("kind", ["triangle", "rows", "places"])
def test_choices_by_place_in_half_precision_have_code(kind: str) -> None:
    x = te.placeholder((16, 64), H, name="x")
    chosen = {
        "triangle": topi.trilu(x, tirx.const(0, "int32"), True),
        "rows": te.compute(
            x.shape, lambda i, j: tirx.Select(tirx.all(i < 5, i > 2), x[i, j], tirx.const(0, H))
        ),
        "places": te.compute(x.shape, lambda i, j: x[i, j] * (j % 2).astype(H)),
    }
    func = te.create_prim_func([x, chosen[kind]])
    sch = elements.schedule_elements(func, SM_90)
    assert sch is not None
    assert "vectorized(4)" in sch.mod["main"].script()
    assert error(func, sch) < 1e-3
    assert source(sch)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="CUDA code is compiled by nvcc")
@pytest.mark.parametrize("kind", [*RULES, "numbers"])
def test_the_code_of_each_rule_compiles(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    if kind == "numbers":
        functions = [gpu_functions.hard_swish(3, 40, scale=scale) for scale in (False, True)]
    else:
        functions = [gpu_functions.KINDS[kind](rng) for _ in range(4)]
    made = [RULES.get(kind, elements.schedule_elements)(func, SM_90) for func in functions]
    texts = [source(sch) for sch in made if sch is not None]
    assert texts
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        for text in texts:
            assert tvm.get_global_func("tvm_callback_cuda_compile")(text)


def test_a_softmax_is_one_kernel_with_a_warp_per_row() -> None:
    x = te.placeholder((12, 64, 128), "float32", name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x, -1)])
    sch = rows.schedule_rows(func, SM_90)
    assert sch is not None
    assert source(sch).count("__global__ void __launch_bounds__(128) main_kernel(") == 2
    assert error(func, sch) < 1e-6


def test_sums_over_rows_of_a_matrix_are_left_to_other_rules() -> None:
    x = te.placeholder((512, 64), "float32", name="x")
    assert rows.schedule_rows(te.create_prim_func([x, topi.sum(x, 0)]), SM_90) is None


def test_parts_of_a_sum_are_planned_with_all_other_memory() -> None:
    """A pool that takes memory back for a larger block would leave a CUDA graph without it."""
    module = graph_passes.module(
        lambda x, w: relax.op.nn.relu(relax.op.matmul(x, w)),
        torch.ones(49, 4608).half(), torch.ones(4608, 512).half(),
    )  # fmt: skip
    target = tvm.target.Target(targets.to_tvm(SM_90), host={"kind": "llvm"})
    done = pipeline.run(module, SM_90, target, CompileOptions(disabled_passes=("place-units",)))
    (name,) = (k.name for k in done.kernels if k.rule == "tir-gemm")
    func = done.module[name]
    assert len(func.params) == 4  # two operands, the result, and the parts
    assert not [b for b in func.body.block.alloc_buffers if b.scope() == "global"]
