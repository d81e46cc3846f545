"""Small ONNX graphs with one problem each, for the tests of the diagnosis."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tvmscope.core.options import CompileOptions

UNFUSED = CompileOptions(disabled_passes=("fuse-ops", "fuse-tir"))


def constant(name: str, value: np.ndarray):
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))


def chain(*steps: tuple[str, ...]) -> list:
    """Nodes one after another, from x to y; each step is an operator and its further inputs."""
    names = ["x", *(f"t{i}" for i in range(1, len(steps))), "y"]
    return [
        helper.make_node(op, [names[i], *more], [names[i + 1]], name=f"n{i}")
        for i, (op, *more) in enumerate(steps)
    ]


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 0.01


def scatters() -> list:
    """Pairs of rows computed one by one and written into the whole."""
    nodes, last = [], "x"
    for i in range(8):
        rows = np.array([[2 * i], [2 * i + 1]])
        nodes += [
            constant(f"rows{i}", rows),
            helper.make_node("GatherND", ["x", f"rows{i}"], [f"part{i}"], name=f"take{i}"),
            helper.make_node("Sin", [f"part{i}"], [f"sin{i}"], name=f"sin{i}"),
            helper.make_node(
                "ScatterND", [last, f"rows{i}", f"sin{i}"], [o := "y" if i == 7 else f"o{i}"],
                name=f"put{i}",
            ),
        ]  # fmt: skip
        last = o
    return nodes


def matmul(depth: int, width: int) -> list:
    return [constant("w", weights(depth, width)), *chain(("MatMul", "w"))]


def convolution(count: int = 1) -> list:
    """Convolutions with relu, one after another."""
    return [constant("w", weights(32, 32, 3, 3)), *chain(*(("Conv", "w"), ("Relu",)) * count)]


def casts() -> list:
    nodes, last = [], "x"
    for i in range(8):
        out = "y" if i == 7 else f"c{i}"
        to = TensorProto.FLOAT if i % 2 else TensorProto.DOUBLE
        nodes.append(helper.make_node("Cast", [last], [out], name=f"cast{i}", to=to))
        last = out
    return nodes


def elementwise() -> list:
    two = constant("two", np.float32(2))
    return [two, *chain(("Mul", "two"), ("Add", "x"), ("Relu",), ("Sub", "two"), ("Abs",))]
