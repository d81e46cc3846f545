"""Which kernels read a program's inputs and write its outputs, and what moves data between."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from support import placed_units
from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.compiler.describe import edges, sources
from tvmscope.compiler.describe.kernel_work import count
from tvmscope.core.artifact import FALLBACK
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16
from tvmscope.core.profile import Edges

TYPE = relax.TensorType((2, 3), "float32")


def kernel(builder: relax.BlockBuilder, *values: relax.Expr) -> relax.Expr:
    """A call of a kernel, whatever it computes."""
    call = builder.call_te(tvm.topi.add, values[0], values[-1])
    return builder.emit(call)


def program() -> tvm.IRModule:
    """Four kernels: of x; of a view of y; in the middle; of output 1 and its view, output 0."""
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, TYPE) for name in "xy")
    with builder.function("main", [x, y]):
        first = kernel(builder, x)
        viewed = builder.emit(relax.op.reshape(y, (2, 3)))
        second = kernel(builder, viewed, first)
        third = kernel(builder, second)
        last = kernel(builder, third)
        shown = builder.emit(relax.op.reshape(last, (3, 2)))
        builder.emit_func_output(builder.emit(relax.Tuple((shown, last))))
    return builder.get()


def test_views_of_inputs_and_outputs_are_them() -> None:
    found = [where for _, where in edges.program_edges(program())]
    assert found == [
        Edges(inputs=(0,)), Edges(inputs=(1,)), Edges(), Edges(outputs=(0, 1)),
    ]  # fmt: skip


def test_all_inputs_of_a_call_of_the_framework_are_read() -> None:
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, TYPE) for name in "xy")
    with builder.function("main", [x, y]):
        call = relax.op.call_pure_packed(f"{FALLBACK}region_1", x, y, ty_args=[TYPE])
        builder.emit_func_output(kernel(builder, builder.emit(call)))
    found = [where for _, where in edges.program_edges(builder.get())]
    assert found == [Edges(inputs=(0, 1)), Edges(outputs=(0,))]


def test_a_kernel_whose_calls_partly_became_views_has_edges_if_all_are_the_same() -> None:
    module = program()
    calls = sources.kernel_calls(module)
    assert [c.edges for c in edges.placed(calls, module)] == [
        where for _, where in edges.program_edges(module)
    ]
    (name,) = {c.kernel for c in calls}
    more = edges.placed([*calls, sources.Call(name, ())], module)
    assert [c.edges for c in more] == [None] * 5  # which of them is gone is not known


def lowered(ready: Prepared) -> tuple[tvm.IRModule, list[sources.Call]]:
    gpu = targets.resolve(placed_units.GPU)
    made = tvm.target.Target(targets.to_tvm(gpu), host=targets.to_tvm(targets.host_target()))
    module, options = frontends.import_model(ready).module, CompileOptions(precision=FLOAT16)
    kernels = pipeline.run(module, gpu, made, options, until="schedule").module
    return kernels, pipeline.run(module, gpu, made, options, until="memory").calls


def test_on_a_gpu_data_only_moves_at_the_input_and_output(
    conv_net: Prepared, conv_net_onnx: Prepared
) -> None:
    pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")
    for ready in (conv_net, conv_net_onnx):
        kernels, calls = lowered(ready)
        moves = [c for c in calls if c.edges is not None and count(kernels[c.kernel]).moves_only]
        assert [c.edges for c in moves if c.edges.inputs] == [Edges(inputs=(0,))]
        assert len([c for c in moves if c.edges.outputs]) <= 1
        assert [c for c in moves if c.edges == Edges()] == []
        assert calls[-1].edges == Edges(outputs=(0,))
