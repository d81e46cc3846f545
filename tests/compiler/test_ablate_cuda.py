"""What `ablate --target cuda` offers, and what each switch does to the code; no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from support import placed_units
from tvmscope.analysis.ablation import WITHOUT
from tvmscope.compiler import pipeline, targets
from tvmscope.compiler.units import choose, emit
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16, FLOAT32
from tvmscope.cuda.config import MATRIX, Config
from tvmscope.cuda.cubins.kernel_compiler import compile_kernel
from tvmscope.cuda.units import Conv2d, Epilogue, Matmul, Unit
from tvmscope.stages.options import Options
from tvmscope.workflow.ablating import ablate, switches

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

RNG = np.random.default_rng(0)
SWITCHES = {each.name: each for each in switches.of_device("cuda")}
GPU = targets.resolve("cuda:sm_90")
WANTED = (
    "cuda-graph", "target-features", "tensor-cores", "nhwc", "fusion", "dependent-launch",
    "fast-scatter", "records", "generated-kernels", "library", "tir-schedules",
)  # fmt: skip


def random(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


X, W1, W2, B1, HEAD = (
    random(1, 16, 9, 7), random(16, 16, 3, 3), random(16, 16, 1, 1), random(1, 16, 1, 1),
    random(16, 24),
)  # fmt: skip


def network() -> tvm.IRModule:
    """Two convolutions with bias, residual and ReLU, and a product."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            emit_ = builder.emit
            y = emit_(relax.op.nn.conv2d(x, relax.const(W1), padding=(1, 1)))
            y = emit_(relax.op.nn.relu(emit_(relax.op.add(y, relax.const(B1)))))
            z = emit_(relax.op.nn.conv2d(y, relax.const(W2)))
            z = emit_(relax.op.nn.relu(emit_(relax.op.add(z, y))))
            z = emit_(relax.op.mean(z, [2, 3]))
            out = builder.emit_output(relax.op.matmul(z, relax.const(HEAD)))
        builder.emit_func_output(out)
    return builder.get()


def product(size: int) -> tvm.IRModule:
    """One product of square matrices."""
    x = relax.Var("x", relax.TensorType((size, size), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(random(size, size))
            out = builder.emit_output(relax.op.matmul(x, weight))
        builder.emit_func_output(out)
    return builder.get()


def options_without(*names: str, **more: Any) -> CompileOptions:
    return switches.off([SWITCHES[n] for n in names], CompileOptions(**more))


def lowered(*names: str, **more: Any) -> tvm.IRModule:
    return placed_units.lowered(network(), options_without(*names, **more)).module


def units_of(module: tvm.IRModule) -> list[tuple[Unit, Config]]:
    functions = (f for _, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc))
    return [found for f in functions if (found := emit.read(f)) is not None]


def test_everything_that_people_claim_has_a_switch() -> None:
    assert set(WANTED) <= set(SWITCHES)
    assert not any(each.alone for each in SWITCHES.values())


def test_every_switch_is_a_row_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(precisions=(FLOAT16,), db="none")
    asked = ablate.ask(options, GPU, WANTED)
    rows = {row.variant.change: row for row in ablate.plan(options, asked, "torch")}
    assert set(rows) == {None, *(WITHOUT + name for name in WANTED)}
    assert [c for c, row in rows.items() if not row.variant.graph] == ["without cuda-graph"]
    assert len({row.key.folder_name for row in rows.values()}) == len(rows)
    without = ablate.ask(replace(options, graph=False), GPU)
    assert "cuda-graph" not in [switch.name for switch in without.known]


@pytest.fixture(scope="module")
def wanted() -> Any:
    (found,) = placed_units.run(lowered(precision=FLOAT32), X)
    return found


@pytest.mark.parametrize("name", [n for n, each in SWITCHES.items() if not each.tuned])
def test_the_network_is_right_without_each(name: str, wanted: Any) -> None:
    (found,) = placed_units.run(lowered(name, precision=FLOAT16), X)
    assert np.abs(found - wanted).max() / np.abs(wanted).max() < 2e-2


@pytest.mark.parametrize("name", ["fusion", "tensor-cores"])
def test_the_network_is_right_in_float32(name: str, wanted: Any) -> None:
    (found,) = placed_units.run(lowered(name, precision=FLOAT32), X)
    assert np.abs(found - wanted).max() / np.abs(wanted).max() < 1e-4


def test_what_the_switches_change() -> None:
    whole = units_of(lowered(precision=FLOAT16))
    assert {getattr(u, "math", "tensor") for u, _ in whole} == {"tensor"}
    assert any(getattr(u, "epilogue", Epilogue()).activation == "relu" for u, _ in whole)
    exact = units_of(lowered("tensor-cores", precision=FLOAT16))
    assert {u.math for u, _ in exact if isinstance(u, Conv2d | Matmul)} == {"ieee"}
    bare = units_of(lowered("fusion", precision=FLOAT16))
    assert all(getattr(u, "epilogue", Epilogue()) == Epilogue() for u, _ in bare)
    assert units_of(lowered("generated-kernels", precision=FLOAT16)) == []
    alone = units_of(lowered("dependent-launch", precision=FLOAT16))
    assert {c.pdl for _, c in alone} == {0}


def test_a_large_product_is_a_librarys_call_unless_that_is_switched_off() -> None:
    allowed = CompileOptions(precision=FLOAT16, library=True)
    whole = placed_units.lowered(product(896), allowed)
    assert [c.template for _, c in units_of(whole.module)] == ["cublaslt"]
    own = placed_units.lowered(product(896), switches.off([SWITCHES["library"]], allowed))
    ((_, config),) = units_of(own.module)
    assert config.template in MATRIX


def test_without_our_schedules_dlight_has_the_kernels_that_are_not_generated() -> None:
    def rules(*names: str) -> set[str | None]:
        left = options_without("generated-kernels", *names, precision=FLOAT16)
        made = tvm.target.Target(targets.to_tvm(GPU), host={"kind": "llvm"})
        return {kernel.rule for kernel in pipeline.run(network(), GPU, made, left).kernels}

    ours = set(SWITCHES["tir-schedules"].rules)
    assert rules() & ours
    assert not rules("tir-schedules") & ours


def test_records_are_left_out(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = Conv2d(dtype="float16", n=1, h=14, w=14, c=64, oc=64, r=1, s=1)
    usual = choose.Chooser(GPU, {}, recorded=False)(unit)
    assert usual is not None
    other = replace(usual, stages=usual.stages + 1 if usual.stages < 5 else 3)

    def known(_file: Any) -> Any:
        winner = type("Winner", (), {"config": other, "call": None})
        return type("Winners", (), {"by_unit": {unit.key: winner}})

    (tmp_path / "sm_90.jsonl").write_text("")
    monkeypatch.setattr(choose, "SHIPPED", tmp_path)
    monkeypatch.setattr(choose.winners, "load_winners", known)
    assert choose.Chooser(GPU, {})(unit) == other
    assert choose.Chooser(GPU, {}, recorded=False)(unit) == usual


@pytest.mark.parametrize(
    "make",
    [
        lambda: Conv2d(dtype="float16", n=1, h=14, w=14, c=64, oc=64, r=3, s=3),
        lambda: Matmul(dtype="bfloat16", m=128, n=128, k=64),
    ],
)
def test_code_without_the_gpus_own_instructions(make: Callable[[], Unit]) -> None:
    unit = make()
    template: Any = "conv2d" if isinstance(unit, Conv2d) else "matmul"
    config = Config(template=template, m=64, n=64, k=64)
    own = compile_kernel(unit, config, "sm_90")
    portable = compile_kernel(unit, config, "sm_90", "sm_80")
    assert own.matrix is not None
    assert own.matrix.startswith("wgmma")
    assert portable.matrix == "mma m16n8k16"
    assert portable.arch == "sm_90"
    assert portable.cubin[:4] == b"\x7fELF"
    assert _sm(portable.cubin) == _sm(own.cubin) == 90
    exact = compile_kernel(replace(unit, math="ieee"), replace(config, m=32, n=32), "sm_90")  # type: ignore[call-arg]
    assert exact.matrix is None


def _sm(cubin: bytes) -> int:
    """The architecture, as an ELF header says."""
    flags = int.from_bytes(cubin[48:52], "little")
    return flags & 0xFF
