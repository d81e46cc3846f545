"""Kernels of inputs first, those of outputs last: a run is one CUDA graph between them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from support import placed_units
from tvmscope.compiler import pipeline, targets
from tvmscope.compiler.describe import sources
from tvmscope.compiler.rewrites.cuda.one_graph import one_graph
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

RNG = np.random.default_rng(0)
WEIGHTS = [RNG.standard_normal((32, 32)).astype(np.float32) for _ in range(3)]


def two_inputs_two_outputs() -> tvm.IRModule:
    """The second input is read in the middle, and the first output is ready there."""
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((4, 32), "float32")) for name in "xy")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            emit = builder.emit
            a = emit(relax.op.nn.softmax(emit(relax.op.matmul(x, relax.const(WEIGHTS[0])))))
            early = builder.emit_output(relax.op.exp(a))
            b = emit(relax.op.matmul(a, relax.const(WEIGHTS[1])))
            c = emit(relax.op.add(b, emit(relax.op.nn.softmax(y))))
            d = emit(relax.op.nn.softmax(emit(relax.op.matmul(c, relax.const(WEIGHTS[2])))))
            late = builder.emit_output(relax.op.tanh(d))
        builder.emit_func_output(relax.Tuple([early, late]))
    return builder.get()


def names(module: tvm.IRModule) -> list[str]:
    return [str(bound.var.name) for bound in module["main"].body.blocks[0].bindings]


def test_a_run_is_one_graph() -> None:
    target, host = targets.resolve("cuda:sm_90"), targets.host_target()
    tvm_target = tvm.target.Target(targets.to_tvm(target), host=targets.to_tvm(host))
    captured = {}
    for name, without in (("with", ()), ("without", ("one-graph",))):
        options = CompileOptions(precision=FLOAT16, graph=True, disabled_passes=without)
        lowered = pipeline.run(two_inputs_two_outputs(), target, tvm_target, options)
        functions = [var.name_hint for var in lowered.module.get_global_vars()]
        captured[name] = [n for n in functions if "cuda_graph_capture" in n]
    assert len(captured["with"]) == 1
    assert len(captured["without"]) > 1


def test_order_changes_and_numbers_do_not() -> None:
    made = placed_units.lowered(two_inputs_two_outputs(), CompileOptions(precision=FLOAT16)).module
    x, y = (RNG.standard_normal((4, 32)).astype(np.float32) for _ in range(2))
    wanted = placed_units.run(made, x, y)
    legal = relax.transform.LegalizeOps()(two_inputs_two_outputs())
    before = names(legal)
    ordered = one_graph()(legal)
    assert names(ordered) != before
    relax.analysis.well_formed(ordered)  # raises if it is not
    machine = relax.VirtualMachine(tvm.compile(ordered, "llvm"), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(a) for a in (x, y)))
    for value, close in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value.numpy(), close, rtol=5e-3, atol=5e-3)


def test_an_output_that_another_kernel_reads_stays_before_it() -> None:
    """The function returns a tuple that is not bound to a name."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 32), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit_output(builder.call_te(tvm.topi.exp, x))
            between = builder.emit(builder.call_te(tvm.topi.tanh, x))
            last = builder.emit_output(builder.call_te(tvm.topi.add, first, between))
        builder.emit_func_output(relax.Tuple([first, last]))
    made = builder.get()
    bound = made["main"].body.blocks[0].bindings[-1]
    body = relax.SeqExpr(made["main"].body.blocks, relax.Tuple([first, bound.var]))
    main = relax.Function(made["main"].params, body, made["main"].ret_ty)
    made.update_func(made.get_global_var("main"), main)
    assert names(one_graph()(made)) == names(made)


def test_memory_that_is_returned_is_written_after_the_graph() -> None:
    """Kernels that write parts of one output into the same memory belong together."""
    kind = relax.TensorType((4, 32), "float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", kind)
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(builder.call_te(tvm.topi.exp, x), "a")
            part = builder.emit(builder.call_te(tvm.topi.tanh, a), "part")
            b = builder.emit(builder.call_te(tvm.topi.sqrt, a), "b")
            c = builder.emit(builder.call_te(tvm.topi.erf, b), "c")
            adds = builder.call_te(tvm.topi.add, part, a).args[0]
            whole = builder.emit(relax.op.call_tir_inplace(adds, [part, a], 0, kind), "whole")
            out = builder.emit_output((whole, c))
        builder.emit_func_output(out)
    assert [n for n in names(one_graph()(builder.get())) if n != "gv"] == [
        "a", "b", "part", "c", "whole",
    ]  # fmt: skip


def test_source_operators_follow_their_kernels() -> None:
    """Two calls of one kernel change places: the first one writes an output."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 32), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(builder.call_te(tvm.topi.exp, x), "src0s")
            early = builder.emit_output(builder.call_te(tvm.topi.tanh, a), "src1s")
            inner = builder.emit(builder.call_te(tvm.topi.tanh, a), "src2s")
            late = builder.emit_output(builder.call_te(tvm.topi.sqrt, inner), "src3s")
        builder.emit_func_output(relax.Tuple([early, late]))
    before = builder.get()
    calls = sources.kernel_calls(before)
    assert [call.sources for call in calls] == [(0,), (1,), (2,), (3,)]
    after = one_graph()(tvm.IRModule(dict(before.functions_items())))
    ordered = sources.reordered(calls, before, after)
    assert [call.sources for call in ordered] == [(0,), (2,), (1,), (3,)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_value_that_others_read_stays_where_it_is(count: int) -> None:
    """An output that the program goes on with cannot be the last kernel."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 32), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit_output(relax.op.exp(x))
            b = builder.emit_output(relax.op.tanh(a))
        builder.emit_func_output(relax.Tuple([a, b][:count]) if count > 1 else b)
    legal = relax.transform.LegalizeOps()(builder.get())
    before = names(legal)
    assert names(one_graph()(legal)) == before
