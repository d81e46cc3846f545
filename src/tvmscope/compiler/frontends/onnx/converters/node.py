"""One ONNX node as a converter sees it: its inputs, attributes and opset, and ways to emit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir.expr import GenericConst

from tvmscope.compiler.frontends.preflight import Unsupported
from tvmscope.compiler.graph.rewrite import static_shape
from tvmscope.messages import msg

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Node:
    """The arguments of a converter."""

    builder: relax.BlockBuilder
    inputs: Sequence[relax.Expr | None]
    attributes: dict[str, Any]
    opset: int
    results: int = 1
    """How many outputs of the node have a name."""

    def emit(self, value: relax.Expr) -> relax.Expr:
        """Bind a value, so that it has a type."""
        return self.builder.emit(value)

    def given(self, index: int) -> relax.Expr | None:
        """Return an input; None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def input(self, index: int) -> relax.Expr:
        """Return an input that the standard requires."""
        value = self.given(index)
        if value is None:
            raise Unsupported(msg("input {index} is missing", index=index))
        return value

    def array(self, index: int) -> Array | None:
        """Return the value of a constant input; None if it is omitted or computed at run time."""
        return array_of(self.given(index))

    def constant(self, index: int) -> Array | None:
        """Return an input that must be constant; None if it is omitted."""
        value = self.given(index)
        if value is None:
            return None
        found = array_of(value)
        if found is None:
            raise Unsupported(msg("input {index} is known at run time only", index=index))
        return found

    def text(self, name: str, default: str) -> str:
        """Return a string attribute."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def get(self, name: str, default: Any) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)


Converter = Callable[[Node], relax.Expr | None]
"""Returns the node's result (a tuple for several), or None to leave it to TVM's converter."""


def array_of(value: relax.Expr | None) -> Array | None:
    """Return a constant's value; None for any other expression."""
    return value.value.numpy() if isinstance(value, GenericConst) else None


def shape_of(value: relax.Expr) -> tuple[int, ...]:
    """Return a tensor's sizes, which must be known."""
    shape = static_shape(value)
    if shape is None:
        raise Unsupported(msg("a shape is known at run time only"))
    return tuple(int(d) for d in shape)


def dtype_of(value: relax.Expr) -> str:
    """Return a tensor's element type."""
    return str(value.ty.dtype)


def const(value: Any, dtype: str) -> relax.Expr:
    """Return a constant of exactly this type; by default TVM narrows int64 and float64."""
    return relax.const(np.asarray(value, np.dtype(dtype)), dtype)
