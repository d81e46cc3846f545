"""Whose time it is: names of runtimes' fused nodes and of eager operators, found in the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvmscope.backends.profilers.onnxruntime import read_events
from tvmscope.backends.profilers.openvino import OpenVinoProfiler, without_first
from tvmscope.backends.profilers.openvino_host import HostCost
from tvmscope.backends.profilers.torch import find_sources
from tvmscope.compiler.describe.onnx_nodes import SourceGraph, match
from tvmscope.core.prepared import operators
from tvmscope.core.prepared.operators import Operators

node = helper.make_node


@pytest.fixture
def source(tmp_path: Path) -> SourceGraph:
    """A residual block: pool -> conv -> relu -> conv -> add the pool's -> relu -> linear."""
    nodes = [
        node("MaxPool", ["x"], ["p"], name="n_p"),
        node("Conv", ["p", "w1"], ["c1"], name="n_c1"),
        node("Relu", ["c1"], ["r1"], name="n_r1"),
        node("Conv", ["r1", "w2"], ["c2"], name="n_c2"),
        node("Add", ["c2", "p"], ["a"], name="n_a"),
        node("Relu", ["a"], ["r2"], name="n_r2"),
        node("MatMul", ["r2", "w3"], ["m"], name="n_m"),
        node("Add", ["m", "b"], ["y"], name="n_y"),
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("x", "y")]
    weights = [
        helper.make_tensor(n, TensorProto.FLOAT, [1], [0.0]) for n in ("w1", "w2", "w3", "b")
    ]
    onnx.save(
        helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:], weights)),
        tmp_path / "model.onnx",
    )
    operators.write(Operators(onnx={n.name: (f"op/{n.name}",) for n in nodes}), tmp_path)
    return SourceGraph(tmp_path)


def test_fused_nodes_cover_what_lies_between_their_tensors(source: SourceGraph) -> None:
    fused = [
        node("MaxPool", ["x"], ["p"], name="n_p"),
        node("FusedConv", ["p", "w1"], ["r1"], name="fused 1"),
        node("FusedConv", ["r1", "w2", "", "p"], ["r2"], name="fused 2"),
        node("Gemm", ["r2", "w3", "b"], ["y"], name="gemm"),
    ]
    assert match(fused, source) == {
        "n_p": ("op/n_p",),
        "fused 1": ("op/n_c1", "op/n_r1"),
        "fused 2": ("op/n_c2", "op/n_a", "op/n_r2"),
        "gemm": ("op/n_m", "op/n_y"),
    }


def test_nodes_in_a_new_layout_are_found_by_name_inputs_and_activation(
    source: SourceGraph,
) -> None:
    blocked = [
        node("MaxPool", ["x"], ["t0"], name="p_nchwc"),
        node("Conv", ["t0", "k1"], ["t1"], name="r1_nchwc", activation="Relu"),
        node("Conv", ["t1", "k2", "b2", "t0"], ["t3"], name="c2_nchwc", activation="Relu"),
        node("ReorderOutput", ["t3"], ["r2"], name="ReorderOutput"),
        node("Gemm", ["r2", "w3", "b"], ["t4"], name="n_m/MatMulAddFusion"),
        node("Reshape", ["t4"], ["y"], name="gemm_output_reshape"),
    ]
    found = match(blocked, source)
    assert found["r1_nchwc"] == ("op/n_c1", "op/n_r1")
    assert found["ReorderOutput"] == ()
    assert found["n_m/MatMulAddFusion"] == ("op/n_m", "op/n_y")
    assert found["gemm_output_reshape"] == ()
    assert found["c2_nchwc"] == ("op/n_c2", "op/n_a", "op/n_r2")


def test_a_node_that_was_not_fused_covers_itself_only(source: SourceGraph) -> None:
    plain = [
        node("MaxPool", ["x"], ["t0"], name="p_nchwc"),
        node("Conv", ["t0", "k1"], ["t1"], name="c1_nchwc"),
        node("Relu", ["t1"], ["t2"], name="r1_nchwc"),
    ]
    assert match(plain, source) == {
        "p_nchwc": ("op/n_p",), "c1_nchwc": ("op/n_c1",), "r1_nchwc": ("op/n_r1",)
    }  # fmt: skip


def test_names_that_runtimes_extend_are_found(source: SourceGraph) -> None:
    for text, expected in (("n_c1/WithoutBiases", "n_c1"), ("r2", "n_r2"), ("n_m", "n_m")):
        assert source.find(text).name == expected
    assert source.find("Constant_17") is None


def _event(name: str, start: int, length: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "ts": start, "dur": length, "cat": "Node", **more}


def test_onnx_runtime_events_become_a_trace_per_run() -> None:
    events = [
        _event("model_run", 0, 100, cat="Session"),
        _event("a_kernel_time", 10, 40, args={"op_name": "Conv"}),
        _event("inner_kernel_time", 20, 5, args={"op_name": "Add"}),
        _event("b_kernel_time", 60, 30, args={"op_name": "ReorderOutput"}),
        _event("model_run", 200, 50, cat="Session"),
        _event("a_kernel_time", 200, 50, args={"op_name": "Conv"}),
    ]
    first, second = read_events(events, {"a": ("op/a",)})
    assert [s.kernel for s in first.spans] == ["Conv a", "ReorderOutput b"]
    assert [s.kind for s in first.spans] == ["compute", "layout"]
    assert first.spans[0].source_ops == ("op/a",)
    assert first.host_s == pytest.approx(30e-6)
    assert second.host_s == 0


def test_a_reshape_that_onnx_runtime_adds_is_a_layout_change() -> None:
    events = [
        _event("model_run", 0, 100, cat="Session"),
        _event("gemm_input_reshape_kernel_time", 0, 10, args={"op_name": "Reshape"}),
        _event("mine_kernel_time", 10, 10, args={"op_name": "Reshape"}),
    ]
    (trace,) = read_events(events, {"mine": ("op/mine",)})
    assert [span.kind for span in trace.spans] == ["layout", "compute"]


def test_openvino_counters_leave_the_first_run_out() -> None:
    key = ("conv", "Convolution")
    assert without_first({key: 2.0}, {key: 5.0}, 4)[key] == pytest.approx(1.0)
    assert without_first({key: 5.0}, {key: 5.0}, 1)[key] == 5.0


def test_openvinos_parts_of_a_layer_norm_belong_to_it(tmp_path: Path) -> None:
    ov = pytest.importorskip("openvino")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 64]) for n in "xy")
    gain = numpy_helper.from_array(np.linspace(1, 2, 64, dtype=np.float32), "g")
    norm = node("LayerNormalization", ["r", "g"], ["y"], name="norm")
    nodes = [node("Tanh", ["x"], ["r"], name="tanh"), norm]
    graph = helper.make_graph(nodes, "g", [x], [y], [gain])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "model.onnx")
    operators.write(Operators(onnx={n.name: (n.name,) for n in nodes}), tmp_path)
    model = ov.Core().compile_model(tmp_path / "model.onnx", "CPU", {"PERF_COUNT": True})
    profiler = OpenVinoProfiler(
        model, model.create_infer_request(), tmp_path, lambda: HostCost(0.0, 0.0)
    )
    for _ in range(3):
        profiler.run()
    (trace,) = profiler.traces()
    computing = [span for span in trace.spans if span.kind == "compute"]
    assert computing
    assert all(span.source_ops for span in computing), computing


NAMES = ("a/conv2d", "a.act/relu", "a.act@1/relu", "a/add", "a/add_1", "attn/linear", "attn/matmul")


def test_eager_operators_are_found_by_module_call_and_number() -> None:
    calls = [("a", "conv2d"), ("a.act", "relu"), ("a", "add"), ("a.act@1", "relu"), ("a", "add")]
    found = find_sources(calls, NAMES)
    assert found == [("a/conv2d",), ("a.act/relu",), ("a/add",), ("a.act@1/relu",), ("a/add_1",)]


def test_eager_operators_without_module_names_are_found_by_their_order() -> None:
    found = find_sources([("", "conv2d"), ("", "relu"), ("", "relu")], NAMES)
    assert found == [("a/conv2d",), ("a.act/relu",), ("a.act@1/relu",)]


def test_a_fused_eager_operator_stands_for_its_whole_module() -> None:
    assert find_sources([("attn", "_native_multi_head_attention")], NAMES) == [
        ("attn/linear", "attn/matmul")
    ]
    assert find_sources([("", "unheard_of")], NAMES) == [()]


def test_a_block_that_adds_its_convolutions_own_input_is_one_node(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w1"], ["c1"], name="n_c1"),
        node("Add", ["c1", "x"], ["a1"], name="n_a1"),
        node("Conv", ["a1", "w2"], ["c2"], name="n_c2"),
        node("Add", ["c2", "a1"], ["a2"], name="n_a2"),
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("x", "a2")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    operators.write(Operators(onnx={n.name: (n.name,) for n in nodes}), tmp_path)
    blocked = [
        node("ReorderInput", ["x"], ["t0"], name="ReorderInput"),
        node("Conv", ["t0", "k1", "", "t0"], ["t1"], name="c1_nchwc"),
        node("Conv", ["t1", "k2", "", "t1"], ["t2"], name="c2_nchwc"),
        node("ReorderOutput", ["t2"], ["a2"], name="ReorderOutput"),
    ]
    found = match(blocked, SourceGraph(tmp_path))
    assert found["c1_nchwc"] == ("n_c1", "n_a1")
    assert found["c2_nchwc"] == ("n_c2", "n_a2")
    assert found["ReorderOutput"] == ()
