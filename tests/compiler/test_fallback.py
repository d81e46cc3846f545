"""Operators without a kernel run in ONNX Runtime: in which parts, with what result and cost."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tvmscope.compiler import build
from tvmscope.compiler.frontends.onnx import regions
from tvmscope.compiler.frontends.onnx.importer import translate
from tvmscope.core.artifact import FALLBACK, Artifact
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.errors import ImportModelError, SchemaError
from tvmscope.models.prepare import prepare
from tvmscope.runtime import load_model
from tvmscope.runtime.artifact import read
from tvmscope.runtime.loaded_artifact import load_callable

FLOAT = TensorProto.FLOAT


def model(*nodes: onnx.NodeProto, result: tuple[int, ...] = (4, 4)) -> onnx.ModelProto:
    """A graph from x to y."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", FLOAT, (4, 4))],
        [helper.make_tensor_value_info("y", FLOAT, result)],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def node(operator: str, source: str, result: str, **attributes: object) -> onnx.NodeProto:
    foreign = {"domain": "com.microsoft"} if operator == "QuickGelu" else {}
    return helper.make_node(
        operator, source.split(), result.split(), name=result, **foreign, **attributes
    )


def mixed() -> onnx.ModelProto:
    return model(
        node("Mul", "x x", "square"),
        node("QuickGelu", "square", "soft", alpha=1.5),
        node("Det", "soft", "determinant"),
        node("Add", "soft determinant", "sum"),
        node("QuickGelu", "sum", "again"),
        node("Relu", "again", "y"),
    )


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, host: Target) -> Artifact:
    folder = tmp_path_factory.mktemp("mixed")
    onnx.save(mixed(), folder / "m.onnx")
    ready = folder / "prepared"
    described = prepare(str(folder / "m.onnx"), str(ready), LoadOptions())
    return build.build(
        Prepared(ready, described), folder / "artifact", host, host, CompileOptions()
    )


def test_an_artifact_gives_what_the_framework_gives(artifact: Artifact) -> None:
    x = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(mixed().SerializeToString())
    (wanted,) = session.run(None, {"x": x})
    loaded = load_callable(artifact.path)
    np.testing.assert_allclose(loaded(x)["y"], wanted, rtol=1e-5, atol=1e-6)
    other = load_callable(artifact.path)  # a second one beside it
    np.testing.assert_array_equal(other(x)["y"], loaded(x)["y"])


def test_an_artifact_says_what_it_needs(artifact: Artifact) -> None:
    parts = read(artifact.path).fallbacks
    assert [part.operators for part in parts] == [
        ("soft/QuickGelu", "determinant/Det"),
        ("again/QuickGelu",),
    ]
    assert {part.framework for part in parts} == {"onnxruntime"}
    assert all((artifact.path / part.file).is_file() for part in parts)
    told = [str(text) for text in artifact.warnings if "ONNX Runtime" in str(text)]
    assert len(told) == 1
    assert "soft/QuickGelu, determinant/Det, again/QuickGelu run in ONNX Runtime" in told[0]
    called = [call for call in artifact.kernels if call.kernel.startswith(FALLBACK)]
    assert [call.source_ops for call in called] == [part.operators for part in parts]


def test_the_small_loader_says_what_it_cannot_do(artifact: Artifact) -> None:
    with pytest.raises(load_model.LoadError, match=r"determinant/Det.* tvmscope.load_artifact"):
        load_model.Model(artifact.path)


def test_a_changed_part_is_refused(artifact: Artifact) -> None:
    file = artifact.path / artifact.fallbacks[0].file
    content = file.read_bytes()
    try:
        file.write_bytes(content[:-1])
        with pytest.raises(SchemaError, match="corrupted"):
            load_callable(artifact.path)
    finally:
        file.write_bytes(content)


def test_without_fallback_the_operators_are_refused_by_name() -> None:
    x = np.ones((4, 4), np.float32)
    with pytest.raises(ImportModelError, match=r"com.microsoft.QuickGelu x2 .*, Det x1"):
        translate(mixed(), {"x": x}, "m")


def test_a_model_that_is_wholly_converted_has_no_part() -> None:
    x = np.ones((4, 4), np.float32)
    imported = translate(model(node("Relu", "x", "y")), {"x": x}, "m", fallback=True)
    assert imported.fallbacks == ()
    assert imported.warnings == ()


def test_parallel_operators_of_one_level_are_one_part() -> None:
    graph = model(
        node("QuickGelu", "x", "a"),
        node("Relu", "x", "b"),
        node("QuickGelu", "x", "c"),
        node("Add", "a b", "d"),
        node("Add", "d c", "y"),
    )
    x = np.ones((4, 4), np.float32)
    changed, found = regions.cut(graph, {"a": "no", "c": "no"}, regions.types_of(graph, {"x": x}))
    assert [n.op_type for n in changed.graph.node] == ["Relu", "Fallback", "Add", "Add"]
    assert [part.operators for part, _ in found.values()] == [("a/QuickGelu", "c/QuickGelu")]


def test_what_reads_a_size_of_run_time_goes_along() -> None:
    graph = model(
        node("NonZero", "x", "places"),
        node("Cast", "places", "numbers", to=FLOAT),
        node("ReduceSum", "numbers", "y", keepdims=0),
        result=(),
    )
    x = np.ones((4, 4), np.float32)
    types = regions.types_of(graph, {"x": x})
    _, found = regions.cut(graph, {"places": "no"}, types)
    ((part, _),) = found.values()
    assert part.operators == ("places/NonZero", "numbers/Cast", "y/ReduceSum")
    assert part.fixed
