"""A pass on a small graph beside the graph that it should give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax

from support.paired_graph import Graph, Node

Build = Callable[..., relax.Expr]


def module(build: Build, *inputs: torch.Tensor) -> tvm.IRModule:
    """A function of `inputs`; only types matter here, so nothing is computed."""
    graph = Graph()
    nodes: list[Node] = [graph.input_of(value) for value in inputs]
    return tidy(graph.module(graph.apply(build, lambda *v: torch.zeros(()), *nodes)))


def tidy(mod: tvm.IRModule) -> tvm.IRModule:
    """Without aliases and unused bindings, which differ by how a module was made."""
    return relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(mod))


def check(step: tvm.transform.Pass, before: Build, after: Build, *inputs: torch.Tensor) -> None:
    tvm.ir.assert_structural_equal(tidy(step(module(before, *inputs))), module(after, *inputs))


def const(value: Any, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.asarray(value, dtype), dtype)
