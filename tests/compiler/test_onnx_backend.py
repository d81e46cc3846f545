"""ONNX's backend interface, and a sample of ONNX's node tests through ONNX's own runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from support import node_tests
from tvmscope import onnx_backend
from tvmscope.errors import ImportModelError, UsageError

SAMPLE = 150
TESTS = Path(__file__).parents[1]
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def graph(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, Any]], outputs: dict[str, Any]
) -> onnx.ModelProto:
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in outputs.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_a_sample_of_the_node_tests_passes(tmp_path: Path) -> None:
    """In a process of its own: workers must not inherit this one's threads."""
    command = [sys.executable, "-W", "ignore", "-m", "support.node_tests", "--modes", "plain"]
    found = tmp_path / "outcomes.jsonl"
    options = ["--sample", str(SAMPLE), "--workers", "1", "--json", str(found)]
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    subprocess.run([*command, *options], check=True, env={**os.environ, "PYTHONPATH": path})
    outcomes = [json.loads(line) for line in found.read_text().splitlines()]
    assert len(outcomes) == SAMPLE
    assert [(o["test"], o["reason"]) for o in outcomes if not o["passed"]] == []


def test_a_test_that_crashes_or_hangs_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Any, test: str) -> str:
        if test == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if test == "hang":
            time.sleep(60)
        return "" if test == "good" else "wrong"

    monkeypatch.setattr(node_tests, "_suite", lambda mode: None)
    monkeypatch.setattr(node_tests, "_run", run)
    monkeypatch.setattr(node_tests, "LIMIT_S", 3.0)
    tasks = [(test, "plain") for test in ("crash", "good", "hang", "bad", "good")]
    outcomes = list(node_tests.run_all(tasks, workers=1))
    assert [(o.test, o.reason.partition(":")[0]) for o in outcomes] == [
        ("crash", "crash"),
        ("good", ""),
        ("hang", "hang"),
        ("bad", "wrong"),
        ("good", ""),
    ]


def test_models_run_on_the_cpu_only() -> None:
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA")
    model = graph([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, (2,))}, {"y": (2,)})
    with pytest.raises(UsageError, match="use CPU"):
        onnx_backend.prepare(model, "CUDA")


def test_another_shape_is_compiled_for_itself() -> None:
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"])]
    model = graph(nodes, {"x": (FLOAT, ("n", "?"))}, {"y": ("n", "m")})
    ready = onnx_backend.prepare(model)
    for shape in ((2, 3), (4, 1)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(ready.run([x]).y, x * x)


def test_an_input_that_decides_on_shapes_is_read_at_each_run() -> None:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)]
    model = graph(nodes, {"x": (FLOAT, (2, 3)), "axes": (INT, (1,))}, {"y": ("n",)})
    ready = onnx_backend.prepare(model)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for axis in (0, 1):
        found = ready.run({"x": x, "axes": np.array([axis])})
        np.testing.assert_array_equal(found.y, x.sum(axis))


def test_an_operator_without_a_converter_is_named() -> None:
    nodes = [helper.make_node("RandomUniformLike", ["x"], ["y"], name="noise")]
    model = graph(nodes, {"x": (FLOAT, (2,))}, {"y": (2,)})
    with pytest.raises(ImportModelError, match="RandomUniformLike"):
        onnx_backend.run_model(model, [np.zeros(2, np.float32)], fallback=False)


def test_an_input_that_is_no_array_is_refused() -> None:
    model = graph([helper.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, (2,))}, {"y": (2,)})
    with pytest.raises(UsageError, match="'x' must be a numpy array"):
        onnx_backend.run_model(model, [["text"]])


def test_sizes_split_beside_a_branch_are_constants() -> None:
    """No simplifier looks at graphs with branches: the sizes must be followed here."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["same"])],
        "body",
        [],
        [helper.make_tensor_value_info("same", FLOAT, None)],
    )
    nodes = [
        helper.make_node("Constant", [], ["yes"], value_int=1),
        helper.make_node("Constant", [], ["last"], value_int=-1),
        helper.make_node("Cast", ["yes"], ["condition"], to=TensorProto.BOOL),
        helper.make_node("If", ["condition"], ["z"], then_branch=body, else_branch=body),
        helper.make_node("Shape", ["z"], ["sizes"]),
        helper.make_node("Split", ["sizes"], ["a", "b"], num_outputs=2),
        helper.make_node("Concat", ["b", "a"], ["turned"], axis=0),
        helper.make_node("Reshape", ["z", "turned"], ["w"]),
        helper.make_node("Unsqueeze", ["w", "last"], ["y"]),
    ]
    model = graph(nodes, {"x": (FLOAT, [2, 3, 5])}, {"y": None})
    x = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    (found,) = onnx_backend.run_model(model, [x], fallback=False)
    np.testing.assert_array_equal(found, x.reshape(5, 2, 3, 1))
