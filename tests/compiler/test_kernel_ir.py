"""What is said about kernels: loops, buffers, schedule, and the work of one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

from tvmscope.compiler.build import build
from tvmscope.compiler.describe import kernel_ir, kernel_work
from tvmscope.compiler.kernels import winograd
from tvmscope.compiler.kernels.blocked import Window
from tvmscope.compiler.kernels.winograd_transforms import F4
from tvmscope.compiler.schedules import cpu
from tvmscope.compiler.schedules.apply import apply_schedules
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.profile import Loop
from tvmscope.core.target import Target
from tvmscope.cuda.config import Config
from tvmscope.cuda.units import Matmul
from tvmscope.errors import SchemaError
from tvmscope.runtime.artifact import KERNELS, read_kernels


def _func(*tensors: te.Tensor) -> tirx.PrimFunc:
    return te.create_prim_func(list(tensors))


def test_a_multiply_add_is_two_and_every_tensor_crosses_memory_once() -> None:
    a = te.placeholder((7, 5), name="a")
    b = te.placeholder((5, 3), name="b")
    work = kernel_work.count(_func(a, b, topi.matmul(a, b)))
    assert work.flops == 2 * 7 * 5 * 3
    assert work.bytes == 4 * (7 * 5 + 5 * 3 + 7 * 3)
    assert not work.moves_only


def test_an_activation_counts_its_arithmetic() -> None:
    a = te.placeholder((10,), name="a")
    assert kernel_work.count(_func(a, topi.nn.relu(topi.exp(a)))).flops == 20


def test_padding_is_not_arithmetic_and_moves_only() -> None:
    a = te.placeholder((4, 4), name="a")
    work = kernel_work.count(_func(a, topi.nn.pad(a, (1, 1), (1, 1))))
    assert work.flops is None
    assert work.moves_only


@pytest.mark.parametrize("what", ["transpose", "cast", "reshape"])
def test_kernels_that_only_move_data_are_known(what: str) -> None:
    a = te.placeholder((4, 6), name="a")
    made = {
        "transpose": lambda: topi.transpose(a, (1, 0)),
        "cast": lambda: topi.cast(a, "float16"),
        "reshape": lambda: topi.reshape(a, (6, 4)),
    }[what]()
    work = kernel_work.count(_func(a, made))
    assert work.moves_only
    assert work.flops is None
    assert work.bytes == 4 * 24 + (2 if what == "cast" else 4) * 24


def test_a_gather_reads_the_rows_it_takes_and_is_no_layout_change() -> None:
    table = te.placeholder((1000, 8), name="table")
    rows = te.placeholder((3,), "int32", name="rows")
    work = kernel_work.count(_func(table, rows, topi.take(table, rows, axis=0, mode="fast")))
    assert work.bytes is not None
    assert 4 * (3 * 8 * 2) <= work.bytes <= 4 * (3 * 8 * 3)
    assert not work.moves_only


def test_integer_arithmetic_is_work_but_not_floating_point() -> None:
    a = te.placeholder((4,), "int64", name="a")
    work = kernel_work.count(_func(a, topi.add(a, a)))
    assert work.flops is None
    assert not work.moves_only


def test_a_symbolic_size_is_unknown_work() -> None:
    a = te.placeholder((te.var("n"),), name="a")
    assert kernel_work.count(_func(a, topi.exp(a))) == kernel_work.Work()


def test_winograd_counts_what_it_executes_not_the_direct_convolution() -> None:
    channels, side, f4 = 16, 8, F4
    data = te.placeholder((1, 1, side, side, 16), name="data")
    weight = te.placeholder(
        winograd.pack_weight(np.zeros((channels, channels, 3, 3), np.float32), f4).shape,
        name="weight",
    )
    out = winograd.conv2d(data, weight, Window((1, 1), (1, 1, 1, 1), (1, 1)), f4)
    flops = kernel_work.count(_func(data, weight, out)).flops
    tiles = (side // f4.tile) ** 2
    products = 2 * f4.alpha**2 * channels * channels * tiles
    direct = 2 * 9 * channels * channels * side * side
    # The transforms, by hand. Of the input: two rows of three terms, one with a weight of one (4
    # each), and two pairs of rows that share d4-w*d2 and d3-w*d1 (2 each, then 2 and 2): 24.
    # Of the output: m1+m2, m1-m2, m3+m4, m3-m4; then 4, 2, 2 and 4 more: 16. Columns, then rows;
    # neighbouring tiles share two of their six columns.
    across = side // f4.tile
    columns = (across * f4.tile + 2) * across
    into = 24 * (columns + 6 * tiles) * channels
    back = 16 * (6 + 4) * channels * tiles
    assert flops == products + into + back
    assert products < direct


def _walk(loops: Iterable[Loop]) -> Iterator[Loop]:
    for loop in loops:
        yield loop
        yield from _walk(loop.body)


def _describe(func: tirx.PrimFunc, host: Target) -> kernel_ir.KernelIR:
    module = tvm.IRModule({"main": func})
    copy = tvm.IRModule({"main": func})
    (ir,) = kernel_ir.describe(module, apply_schedules(cpu.RULES, host, [])(copy), [])
    return ir


def test_a_scheduled_kernel_shows_its_loops_rule_and_trace(host: Target) -> None:
    a = te.placeholder((64, 48), name="a")
    ir = _describe(_func(a, topi.exp(a)), host)
    loops = [loop for loop in _walk(ir.tree) if loop.extent is not None]
    assert [loop.mode for loop in loops if loop.mode != "serial"] == ["parallel", "vectorized"]
    assert int(np.prod([loop.extent for loop in loops])) == 64 * 48
    (statement,) = [loop for loop in _walk(ir.tree) if loop.extent is None]
    assert "exp(a[" in statement.text
    assert ir.rule == "fallback"
    assert any(line.startswith("sch.parallel(") for line in ir.trace)
    first = ir.buffers[0]
    assert (first.name, first.shape, first.dtype, first.scope) == (
        "a",
        (64, 48),
        "float32",
        "global",
    )


def test_statements_are_shown_without_the_types_of_their_numbers(host: Target) -> None:
    a = te.placeholder((64, 48), name="a")
    ir = _describe(_func(a, topi.nn.pad(a, (1, 0), pad_value=2.5)), host)
    (statement,) = [loop for loop in _walk(ir.tree) if loop.extent is None]
    assert "T.int" not in statement.text
    assert statement.text.endswith("2.5)")


def test_an_unscheduled_kernel_is_serial_and_has_no_rule() -> None:
    a = te.placeholder((64,), name="a")
    module = tvm.IRModule({"main": _func(a, topi.exp(a))})
    (ir,) = kernel_ir.describe(module, module, [])
    assert ir.rule is None
    assert ir.trace == ()
    assert {loop.mode for loop in _walk(ir.tree)} == {"serial"}


def test_an_artifact_describes_the_kernels_it_calls(
    conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    for pipeline in ("tvmscope", "tvm"):
        folder = tmp_path / pipeline
        built = build(conv_net, folder, host, host, CompileOptions(pipeline=pipeline, threads=2))
        kernels = {ir.name: ir for ir in read_kernels(folder)}
        assert {call.kernel for call in built.kernels} <= kernels.keys()
        assert any(ir.rule for ir in kernels.values()) == (pipeline == "tvmscope")
        convolutions = [ir for ir in kernels.values() if "conv" in ir.name]
        assert all(ir.flops and ir.bytes and ir.tree for ir in convolutions)
        assert built.warnings == ()


def test_a_damaged_description_says_what_to_do(tmp_path: Path) -> None:
    assert read_kernels(tmp_path) == ()
    (tmp_path / KERNELS).write_text('[{"name": 3}]')
    with pytest.raises(SchemaError, match="compile the model again"):
        read_kernels(tmp_path)


def _config(template: Any) -> Config:
    return Config(template=template, m=64, n=32, k=32)


def test_a_description_says_how_tensor_cores_multiply_float32() -> None:
    def products(math: Any, template: str) -> str | None:
        dtype: Any = "float16" if math == "tensor" else "float32"
        return kernel_ir._products(
            Matmul(m=64, n=64, k=64, dtype=dtype, math=math), _config(template)
        )

    assert products("tf32x3", "matmul") == "tf32x3"
    assert products("tf32", "matmul") == products("tf32", "cublaslt") == "tf32"
    assert products("tf32x3", "cublaslt") is None  # the library multiplies float32 as it is
    assert products("tf32x3", "matvec") is None  # on ordinary cores
    assert products("tensor", "matmul") is None
