"""Small models, written to files, that the tests of this folder prepare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tvmscope.core.model import Model
from tvmscope.core.options import LoadOptions

Prepare = Callable[..., tuple[Model, Path]]


@pytest.fixture
def prepare(tmp_path: Path) -> Prepare:
    """Prepare a source into a fresh folder, without touching the network."""
    from tvmscope.models.prepare import prepare as run

    def prepared(source: str | Path, name: str = "out", pickled: Path | None = None, **options):
        folder = tmp_path / name
        options = {"offline": True, "need_onnx": False} | options
        model = run(str(source), str(folder), LoadOptions(**options), pickled and str(pickled))
        return model, folder

    return prepared


@pytest.fixture
def write_py(tmp_path: Path) -> Callable[[str], Path]:
    """Write a Python model file."""

    def write(text: str, name: str = "tiny.py") -> Path:
        path = tmp_path / name
        path.write_text("import torch\nfrom torch import nn\n" + text)
        return path

    return write


def tensor(name: str, dims: list[int | str] | None, kind: int = TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, dims)


def write_onnx(path: Path, nodes, inputs, outputs, initializers=(), **options) -> Path:
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, list(initializers))
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path, **options)
    return path


@pytest.fixture
def linear_onnx(tmp_path: Path) -> Path:
    """x (batch x 4) @ w, with the weight listed among the graph's inputs as old exporters do."""
    weight = onnx.numpy_helper.from_array(np.eye(4, 3, dtype=np.float32), "w")
    return write_onnx(
        tmp_path / "linear.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [tensor("x", ["batch", 4]), tensor("w", [4, 3])],
        [tensor("y", ["batch", 3])],
        [weight],
    )


@pytest.fixture
def embedding_onnx(tmp_path: Path) -> Path:
    """Token ids (batch x length) into a table of 50 rows; a second, unused-looking mask input."""
    table = onnx.numpy_helper.from_array(np.arange(100, dtype=np.float32).reshape(50, 2), "table")
    return write_onnx(
        tmp_path / "embedding.onnx",
        [
            helper.make_node("Cast", ["ids"], ["ids64"], to=TensorProto.INT64),
            helper.make_node("Gather", ["table", "ids64"], ["rows"]),
            helper.make_node("Cast", ["mask"], ["weight"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["rows", "weight"], ["masked"]),
        ],
        [
            tensor("ids", ["batch", "length"], TensorProto.INT32),
            tensor("mask", ["batch", "length", 1], TensorProto.BOOL),
        ],
        [tensor("rows", ["batch", "length", 2]), tensor("masked", ["batch", "length", 2])],
        [table],
    )
