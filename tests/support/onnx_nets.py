"""Small networks as ONNX files: what compiles and runs them starts without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

OUTPUT = "output_0"
"""The name that an exported torch model's output has too."""


def classifier(file: Path) -> Path:
    """A convolution, ReLU, mean and a linear layer: five classes of a 3x12x10 picture."""
    random = np.random.default_rng(0)
    constants = {
        "kernel": random.standard_normal((8, 3, 3, 3)) / 5,
        "bias": random.standard_normal(8) / 5,
        "weight": random.standard_normal((5, 8)) / 3,
        "offset": random.standard_normal(5) / 3,
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "bias"], ["a"], name="conv", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("GlobalAveragePool", ["b"], ["c"], name="mean"),
        helper.make_node("Flatten", ["c"], ["d"], name="flatten"),
        helper.make_node("Gemm", ["d", "weight", "offset"], [OUTPUT], name="head", transB=1),
    ]
    return _save(file, nodes, constants, (1, 3, 12, 10), (1, 5))


def two_convolutions(file: Path) -> Path:
    """3x3 into 64 channels and 1x1 into 128 on a 24x24 picture, each with a ReLU."""
    random = np.random.default_rng(0)
    constants = {
        "first": random.standard_normal((64, 3, 3, 3)) / 5,
        "second": random.standard_normal((128, 64, 1, 1)) / 8,
    }
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["a"], name="stem", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["b", "second"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], [OUTPUT], name="relu_1"),
    ]
    return _save(file, nodes, constants, (1, 3, 24, 24), (1, 128, 24, 24))


def detector(file: Path, first_scores: Sequence[float] = (1.0, 0.2, 0.9)) -> Path:
    """Two boxes, of objectness and two classes, whose scores grow with the picture's light."""
    boxes = [[16.0, 16.0, 16.0, 8.0], [24.0, 24.0, 4.0, 4.0], *[[31.0] * 4] * 8]
    scores = [[*first_scores], [0.5, 1.0, 0.0], *[[0.0] * 3] * 8]
    constants = {
        "boxes": np.array([boxes]),
        "scores": np.array([scores]),
        "zero": np.zeros((1, 1, 1)),
        "shape": np.array([1, 1, 1]),
    }
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], name="mean", keepdims=1),
        helper.make_node("Reshape", ["m", "shape"], ["light"], name="light"),
        helper.make_node("Mul", ["light", "zero"], ["nothing"], name="nothing"),
        helper.make_node("Add", ["boxes", "nothing"], ["b"], name="boxes"),
        helper.make_node("Mul", ["scores", "light"], ["s"], name="scores"),
        helper.make_node("Concat", ["b", "s"], [OUTPUT], name="rows", axis=-1),
    ]
    return _save(file, nodes, constants, (1, 3, 32, 32), (1, 10, 7))


def _save(
    file: Path,
    nodes: list[NodeProto],
    constants: dict[str, np.ndarray],
    taken: tuple[int, ...],
    given: tuple[int, ...],
) -> Path:
    """Whole numbers are sizes, all others float32."""
    kinds = {"i": np.int64, "f": np.float32}
    graph = helper.make_graph(
        nodes,
        file.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, taken)],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, given)],
        [numpy_helper.from_array(v.astype(kinds[v.dtype.kind]), k) for k, v in constants.items()],
    )
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), file)
    return file
