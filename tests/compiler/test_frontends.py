"""Importing models: what is refused before anything compiles, and what simplification is for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.compiler.frontends.onnx import importer as onnx_frontend
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.errors import ImportModelError
from tvmscope.models.prepare import prepare

STRANGE = """
import torch

class Block(torch.nn.Module):
    def forward(self, x):
        return torch.special.i0(x) + torch.special.i0(x + 1)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Block()

    def forward(self, x):
        return torch.igamma(self.inner(x).abs(), x.abs())

def get_inputs():
    return [torch.rand(2, 8)]
"""


def model(nodes: list[onnx.NodeProto], shape: tuple[int, ...], *weights: onnx.TensorProto):
    """A graph from x to a matrix y, whose shape is left to inference."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("rows", "columns"))],
        list(weights),
    )
    domains = sorted({node.domain for node in nodes} - {""})
    opsets = [helper.make_opsetid("", 18), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def ready(proto: onnx.ModelProto, folder: Path) -> Prepared:
    onnx.save(proto, folder / "m.onnx")
    return Prepared(folder / "p", prepare(str(folder / "m.onnx"), str(folder / "p"), LoadOptions()))


def run(prepared: Prepared, host: Target) -> np.ndarray:
    target = tvm.target.Target(targets.to_tvm(host))
    lowered = pipeline.run(frontends.import_model(prepared).module, host, target, CompileOptions())
    executable = tvm.relax.build(lowered.module, target, relax_pipeline=None)
    with np.load(prepared.inputs_path) as inputs:
        arrays = [tvm.runtime.tensor(inputs[spec.name]) for spec in prepared.model.inputs]
    result = tvm.relax.VirtualMachine(executable, tvm.cpu())["main"](*arrays)
    return np.asarray((result if hasattr(result, "numpy") else result[0]).numpy())


def same_as_reference(prepared: Prepared, host: Target) -> None:
    with np.load(prepared.reference_path) as reference:
        np.testing.assert_allclose(run(prepared, host), reference["y"], rtol=1e-5, atol=1e-6)


# ---- the pre-flight -----------------------------------------------------------------------------


def test_preflight_names_every_unsupported_onnx_operator_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gelu", ["x"], ["a"], name="first", domain="com.microsoft"),
        helper.make_node("RandomUniformLike", ["a"], ["b"], name="noise"),
        helper.make_node("Gelu", ["b"], ["c"], name="second", domain="com.microsoft"),
        helper.make_node("Relu", ["c"], ["d"], name="fine"),
        helper.make_node("Gelu", ["d"], ["y"], name="third", domain="com.microsoft"),
    ]
    prepared = ready(model(nodes, (2, 4)), tmp_path)
    with pytest.raises(ImportModelError) as refusal:
        frontends.import_model(prepared)
    text = str(refusal.value)
    assert "m: TVM cannot import 2 of its operators" in text
    assert "com.microsoft.Gelu x3 (first at node 'first')" in text
    assert "RandomUniformLike x1 (first at node 'noise')" in text
    assert "Relu" not in text
    assert "--backends" in text


def test_preflight_gives_the_number_of_a_node_without_a_name(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("RandomUniformLike", ["a"], ["y"]),
    ]
    with pytest.raises(
        ImportModelError, match=r"RandomUniformLike x1 \(first at node 'RandomUniformLike_1'\)"
    ):
        frontends.import_model(ready(model(nodes, (2, 4)), tmp_path))


def test_preflight_names_every_unsupported_torch_operator_and_its_module(tmp_path: Path) -> None:
    (tmp_path / "strange.py").write_text(STRANGE)
    described = prepare(str(tmp_path / "strange.py"), str(tmp_path / "p"), LoadOptions())
    with pytest.raises(ImportModelError) as refusal:
        frontends.import_model(Prepared(tmp_path / "p", described))
    text = str(refusal.value)
    assert "strange: TVM cannot import 2 of its operators" in text
    assert "i0.default x2 (first at inner/" in text
    assert "igamma.default x1 (first at " in text


def test_an_operator_that_the_importer_only_claims_to_know_is_named(tmp_path: Path) -> None:
    weights = [
        numpy_helper.from_array(np.array([4]), "depth"),
        numpy_helper.from_array(np.array([0, 1], np.float32), "values"),
    ]
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("OneHot", ["i", "depth", "values"], ["y"], name="hot"),
    ]
    with pytest.raises(ImportModelError, match=r"importer failed at OneHot 'hot': .*; `onnxslim`"):
        frontends.import_model(ready(model(nodes, (3,), *weights), tmp_path))


# ---- shape arithmetic ---------------------------------------------------------------------------


def flattening() -> onnx.ModelProto:
    """What exporters write for `x.view(x.shape[0], -1)`, then a product."""
    weights = [
        numpy_helper.from_array(np.array(0), "zero"),
        numpy_helper.from_array(np.array([-1]), "rest"),
        numpy_helper.from_array(np.arange(24, dtype=np.float32).reshape(12, 2), "w"),
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="shape"),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], name="batch", axis=0),
        helper.make_node("Unsqueeze", ["batch", "zero1"], ["batch1"], name="unsqueeze"),
        helper.make_node("Concat", ["batch1", "rest"], ["target"], name="target", axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"], name="reshape"),
        helper.make_node("MatMul", ["flat", "w"], ["y"], name="product"),
    ]
    return model(nodes, (2, 3, 4), *weights, numpy_helper.from_array(np.array([0]), "zero1"))


def test_shape_arithmetic_is_folded_away(tmp_path: Path, host: Target) -> None:
    prepared = ready(flattening(), tmp_path)
    simplified, remarks = onnx_frontend.simplify(onnx.load(prepared.onnx_path))
    assert remarks == ()
    assert {node.op_type for node in simplified.graph.node} <= {"Reshape", "MatMul"}
    same_as_reference(prepared, host)


def test_expand_to_a_computed_shape(tmp_path: Path, host: Target) -> None:
    weights = [
        numpy_helper.from_array(np.array([5, 1]), "more"),
        numpy_helper.from_array(np.array([1]), "one"),
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Mul", ["shape", "more"], ["target"]),
        helper.make_node("Expand", ["x", "target"], ["y"]),
    ]
    same_as_reference(ready(model(nodes, (1, 4), *weights), tmp_path), host)


def test_a_graph_without_shape_arithmetic_keeps_its_nodes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["y"], name="two"),
    ]
    proto = onnx.load(ready(model(nodes, (2, 4)), tmp_path).onnx_path)
    simplified, _ = onnx_frontend.simplify(proto)
    assert [node.name for node in simplified.graph.node] == ["one", "two"]


def test_a_simplifier_that_fails_is_a_remark(
    tmp_path: Path, host: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxslim

    def fail(_: onnx.ModelProto) -> onnx.ModelProto:
        raise RuntimeError("boom")

    monkeypatch.setattr(onnxslim, "slim", fail)
    prepared = ready(flattening(), tmp_path)
    imported = frontends.import_model(prepared)
    assert imported.warnings == ("ONNX simplification failed (boom); imported without it",)
    same_as_reference(prepared, host)


@pytest.mark.parametrize("arithmetic", [True, False])
def test_inputs_that_nothing_reads_stay_inputs(
    arithmetic: bool, tmp_path: Path, host: Target
) -> None:
    proto = flattening() if arithmetic else model([helper.make_node("Relu", ["x"], ["y"])], (2, 4))
    extra = helper.make_tensor_value_info("unused", TensorProto.INT64, (2,))
    proto.graph.input.insert(0, extra)
    prepared = ready(proto, tmp_path)
    assert [spec.name for spec in prepared.model.inputs] == ["unused", "x"]
    same_as_reference(prepared, host)
