"""An ONNX model whose weights lie in a file beside it, written without ever holding them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

Array = np.ndarray[Any, Any]
FILE = "weights.data"


def layer(number: int, size: int) -> Array:
    """A layer's weight; products keep the size of what they are given."""
    draws = np.random.default_rng(number)
    return draws.standard_normal((size, size), np.float32) * np.float32(size**-0.5)


def write(folder: Path, layers: int, size: int) -> Path:
    """Layers of a product and a tanh, with shape arithmetic between them."""
    weights, nodes, before = [], [], "x"
    with (folder / FILE).open("wb") as stream:
        for number in range(layers):
            name = f"w{number}"
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[size, size])
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": FILE, "offset": stream.tell(), "length": 4 * size * size}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            stream.write(layer(number, size).data)
            weights.append(tensor)
            nodes += [
                helper.make_node("MatMul", [before, name], [f"p{number}"]),
                helper.make_node("Tanh", [f"p{number}"], [f"t{number}"]),
            ]
            before = f"t{number}"
    nodes += [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Reshape", [before, "shape"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "layers",
        [value("x", TensorProto.FLOAT, [1, size])],
        [value("y", TensorProto.FLOAT, [1, size])],
        weights,
    )
    file = folder / "layers.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    file.write_bytes(made.SerializeToString())
    return file


def computed(layers: int, x: Array) -> Array:
    """What the model computes."""
    for number in range(layers):
        x = np.tanh(x @ layer(number, x.shape[1]))
    return x
