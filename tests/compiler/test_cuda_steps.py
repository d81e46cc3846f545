"""Recurrent layers on CUDA: the loops of all threads compute what the loops as written do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from tvm import tirx

from support import placed_units
from tvmscope.compiler import pipeline, targets
from tvmscope.compiler.frontends.torch import importer
from tvmscope.compiler.schedules.cuda import steps
from tvmscope.core.options import CompileOptions
from tvmscope.errors import BuildError
from tvmscope.runtime import cuda_code, load_model

KINDS = {
    "rnn": lambda size: torch.nn.RNN(3, size),
    "rnn with relu": lambda size: torch.nn.RNN(3, size, nonlinearity="relu"),
    "gru": lambda size: torch.nn.GRU(3, size),
    "lstm": lambda size: torch.nn.LSTM(3, size),
}


class States(torch.nn.Module):
    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.layer(x)[0]
        return states


def module_of(kind: str, size: int) -> tvm.IRModule:
    torch.manual_seed(0)
    program = torch.export.export(States(KINDS[kind](size)), (torch.randn(4, 2, 3),))
    return importer.translate(importer.decomposed(program), "m").module


def function_of(kind: str, size: int) -> tirx.PrimFunc:
    lowered = placed_units.lowered(module_of(kind, size), CompileOptions())
    (found,) = [
        f for _, f in lowered.module.functions_items()
        if isinstance(f, tirx.PrimFunc) and steps.on_threads(f) is not None
    ]  # fmt: skip
    return found


def results(function: tirx.PrimFunc, size: int, gates: int) -> list[np.ndarray]:
    """The kernel's outputs on drawn inputs; the second entry of the batch ends early."""
    random = np.random.default_rng(0)
    shapes = [(4, 2, gates * size), (size, gates * size), (2, size), (2, size), (3 * size,)]
    if gates == 3:
        shapes[-1] = (size,)
    given = [random.uniform(-0.5, 0.5, shape).astype(np.float32) for shape in shapes]
    given.append(np.array([4, 2], np.int32))
    outs = [np.full(s, np.nan, np.float32) for s in ((4, 2, size), (2, size), (2, size))]
    built = tvm.tirx.build(function.with_attr("global_symbol", "main"), target={"kind": "llvm"})
    tensors = [tvm.runtime.tensor(array) for array in (*given, *outs)]
    built["main"](*tensors)
    return [tensor.numpy() for tensor in tensors[-3:]]


@pytest.mark.parametrize("size", [5, 16, 300])
@pytest.mark.parametrize("kind", KINDS)
def test_threads_compute_what_the_loops_do(kind: str, size: int) -> None:
    function = function_of(kind, size)
    threads = steps.on_threads(function, in_turn=True)
    assert threads is not None
    gates = {"gru": 3, "lstm": 4}.get(kind, 1)
    for ours, wanted in zip(
        results(threads, size, gates), results(function, size, gates), strict=True
    ):
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [5, 700, 3000])
def test_a_layer_becomes_a_kernel_with_barriers_that_all_threads_reach(size: int) -> None:
    if cuda_code.compiler() is None:
        pytest.skip("no CUDA compiler is here: install the CUDA toolkit's nvcc")
    gpu = targets.resolve(placed_units.GPU)
    scheduled = steps.schedule_steps(function_of("lstm", size), gpu)
    assert scheduled is not None
    load_model.choose_cuda_compiler()
    target = tvm.target.Target(targets.to_tvm(gpu), host={"kind": "llvm"})
    function = scheduled.mod["main"].with_attr("global_symbol", "main")
    source = tvm.tirx.build(function, target=target).imports[0].inspect_source()
    assert "__shared__" in source
    # a barrier inside of a loop or condition over a thread's elements would be reached by some only
    body, depth = source[source.index("main_kernel(") :], []
    for line in body.splitlines():
        if "__syncthreads" in line:
            assert not any("threadIdx.x)" in each and "if" in each for each in depth), line
        depth += [line] * line.count("{")
        del depth[len(depth) - line.count("}") :]
    with target:
        assert tvm.get_global_func("tvm_callback_cuda_compile")(source)


def test_a_kernel_without_threads_is_an_error_not_host_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would read the GPU's memory on the host."""
    monkeypatch.setattr(steps, "on_threads", lambda func: None)
    gpu = targets.resolve(placed_units.GPU)
    made = tvm.target.Target(targets.to_tvm(gpu), host={"kind": "llvm"})
    with pytest.raises(BuildError, match=r"threads.*: lstm"):
        pipeline.run(module_of("lstm", 5), gpu, made, CompileOptions())
