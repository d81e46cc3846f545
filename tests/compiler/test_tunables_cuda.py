"""Tuning for a GPU that is not here: its tasks, its candidates as CUDA code, and their use."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import s_tir, te

from tvmscope.compiler import build, targets
from tvmscope.compiler.schedules import cuda
from tvmscope.compiler.tunable import extract
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Choice, TuningTask
from tvmscope.runtime import artifact, cuda_code, load_model, tvm_compat
from tvmscope.tuning.search import evolution
from tvmscope.tuning.search.evolution import Begin, Evolution, _text
from tvmscope.tuning.trials.kernels import fill, widened

SM_90 = targets.resolve("cuda:sm_90")
LOOPS = CompileOptions(disabled_passes=("nhwc", "place-units"))
"""Kernels as loops of TVM's, which MetaSchedule schedules; generated ones are other tasks."""


@pytest.fixture(scope="module")
def tasks(conv_net: Prepared, tmp_path_factory: pytest.TempPathFactory) -> list[TuningTask]:
    return extract.extract(conv_net, SM_90, LOOPS, tmp_path_factory.mktemp("functions"))


def heaviest(tasks: list[TuningTask]) -> TuningTask:
    return max(tasks, key=lambda task: task.flops or 0.0)


def bound_trace(function: Path) -> Candidate:
    """What DLight's fallback does, as a trace that MetaSchedule could have proposed."""
    with tvm.target.Target(targets.to_tvm(SM_90), host={"kind": "llvm"}):
        (fallback,) = (rule for rule in cuda.RULES if rule.last_resort)
        sch: s_tir.Schedule | None = fallback.schedule(extract.read_function(function), SM_90)
    assert sch is not None
    return Candidate(trace=_text(sch.trace))


def test_tasks_are_the_fused_kernels_and_begin_with_the_rules_own_schedule(
    tasks: list[TuningTask],
) -> None:
    assert len({task.key for task in tasks}) == len(tasks)
    assert all(task.candidates == (Candidate(),) for task in tasks)
    block = heaviest(tasks)
    assert block.kernel.startswith("fused_conv2d")
    assert block.calls == 2
    assert any(op for op in block.source_ops)


def test_candidates_become_cuda_code_without_a_gpu(tasks: list[TuningTask], tmp_path: Path) -> None:
    function = Path(heaviest(tasks).lowerings[0].function)
    traced = bound_trace(function)
    for candidate in (Candidate(), traced):
        extract.build_candidate(function, candidate, SM_90, tmp_path / f"{candidate.id}.so")
        library = tmp_path / f"{candidate.id}.so"
        assert cuda_code.holds_binary(library) or load_model.holds_source(library)
        script = extract.schedule_candidate(function, candidate, SM_90).script()
        assert "threadIdx.x" in script


def test_a_kernels_plain_loops_run_on_the_cpu_to_check_the_others(
    tasks: list[TuningTask], host: Target, tmp_path: Path
) -> None:
    head = next(task for task in tasks if "matmul" in task.kernel)
    function = Path(head.lowerings[0].function)
    extract.build_plain(function, host, tmp_path / "plain.so")
    arrays = fill(extract.arguments(function), 0)
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.runtime.load_module(str(tmp_path / "plain.so"))["main"](*tensors)
    x, weight, bias, _ = arrays
    wanted = x @ (weight if weight.shape[0] == x.shape[-1] else weight.T) + bias
    np.testing.assert_allclose(tensors[-1].numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_half_precision_is_checked_by_sums_in_single(host: Target, tmp_path: Path) -> None:
    """Loops that add thousands of halves one by one are off by percents; tensor cores are not."""
    data = te.placeholder((4, 4608), "float16", name="data")
    weight = te.placeholder((4608, 8), "float16", name="weight")
    k = te.reduce_axis((0, 4608), name="k")
    total = te.compute((4, 8), lambda i, j: te.sum(data[i, k] * weight[k, j], axis=k))
    func = te.create_prim_func([data, weight, total]).with_attr("global_symbol", "main")
    function = tmp_path / "product.json"
    function.write_text(tvm.ir.save_json(func))
    extract.build_plain(function, host, tmp_path / "plain.so")
    args = extract.arguments(function)
    arrays = fill(widened(args), 0)
    assert {str(a.dtype) for a in arrays} == {"float32"}
    assert all(np.array_equal(a, b) for a, b in zip(arrays, fill(args, 0), strict=True))
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.runtime.load_module(str(tmp_path / "plain.so"))["main"](*tensors)
    wanted = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    assert np.abs(tensors[-1].numpy() - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_a_tuned_trace_is_used_by_the_build(
    tasks: list[TuningTask], conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    task = heaviest(tasks)
    trace = bound_trace(Path(task.lowerings[0].function))
    options = replace(LOOPS, choices={task.key: Choice(candidate=trace, source="a test")})
    built = build.build(conv_net, tmp_path / "a", SM_90, host, options)
    assert built.warnings == ()
    used = [kernel.name for kernel in artifact.read_kernels(tmp_path / "a") if kernel.tuned]
    assert used == [task.kernel]


def test_the_rules_schedule_is_not_varied(
    tasks: list[TuningTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its values stay in registers: a tile that is varied alone reads another thread's."""
    monkeypatch.setattr(evolution, "_POPULATION", 16)
    monkeypatch.setattr(evolution, "_FRESH", 8)
    task = heaviest(tasks)
    begin = Begin(
        file=Path(task.lowerings[0].function), target=SM_90, seed=0, count=6, threads=2, known={},
        first_layer=[(Candidate(), 1e-3)],
    )  # fmt: skip
    search = Evolution(begin)
    proposed = search.propose()
    assert search.remark is None
    assert proposed
    assert all("meta_schedule.cooperative_fetch" in trace for trace in proposed)


@pytest.mark.slow  # sampling tensor-core schedules takes minutes on few cores
def test_proposals_for_half_precision_use_tensor_cores(tmp_path: Path) -> None:
    tvm_compat.import_tensor_intrinsics()
    a, b = (te.placeholder((256, 256), "float16", name=n) for n in ("A", "B"))
    k = te.reduce_axis((0, 256), name="k")

    def product(i: Any, j: Any) -> Any:
        return te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k)

    c = te.compute((256, 256), product, name="C")
    file = tmp_path / "matmul.json"
    file.write_text(tvm.ir.save_json(te.create_prim_func([a, b, c])))
    search = Evolution(Begin(file=file, target=SM_90, seed=0, count=4, threads=2, known={}))
    traces = search.propose()
    assert traces
    assert all(json.loads(trace) for trace in traces)
    assert any("wmma" in trace for trace in traces)
