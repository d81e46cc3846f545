"""Operators of a paired graph that the tests of several schedule rules use."""

from __future__ import annotations

import numpy as np
import torch
from tvm import relax

from support.paired_graph import Graph, Node


def matmul(graph: Graph, x: Node, y: Node) -> Node:
    return graph.apply(relax.op.matmul, torch.matmul, x, y)


def softmax(graph: Graph, x: Node, axis: int = -1) -> Node:
    return graph.apply(lambda v: relax.op.nn.softmax(v, axis), lambda v: torch.softmax(v, axis), x)


def log_softmax(graph: Graph, x: Node, axis: int = -1) -> Node:
    return graph.apply(
        lambda v: relax.op.nn.log_softmax(v, axis), lambda v: torch.log_softmax(v, axis), x
    )


def guarded_softmax(graph: Graph, x: Node, empty: float = 0.0) -> Node:
    """What PyTorch's attention becomes: rows of -inf are not NaN but `empty`."""

    def op(v: relax.Expr) -> relax.Expr:
        equal = relax.op.equal(v, relax.const(-np.inf, "float32"))
        some = relax.op.max(
            relax.op.astype(relax.op.logical_not(equal), "int8"), axis=[-1], keepdims=True
        )
        none = relax.op.logical_not(relax.op.astype(some, "bool"))
        return relax.op.where(none, relax.const(empty, "float32"), relax.op.nn.softmax(v, -1))

    def reference(v: torch.Tensor) -> torch.Tensor:
        none = (v == -torch.inf).all(-1, keepdim=True)
        return torch.where(none, torch.tensor(empty), torch.softmax(v, -1))

    return graph.apply(op, reference, x)
