"""Units that normalise rows: softmax and norms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Literal

from tvmscope.cuda.units.base import Dtype, Tensor, Unit
from tvmscope.errors import UsageError
from tvmscope.messages import msg

Form = Literal["layer", "rms", "length"]


@dataclass(frozen=True, kw_only=True)
class Softmax(Unit):
    """Softmax of scaled values over the last axis of [rows, columns], or its logarithm."""

    kind: ClassVar[str] = "softmax"
    rows: int
    columns: int
    scale: float = 1.0
    log: bool = False
    output: Dtype | None = None
    """None means the unit's type."""

    @property
    def label(self) -> str:
        name = "log_softmax" if self.log else "softmax"
        return f"{name} {self.rows}x{self.columns} {self.dtype}"

    @property
    def flops(self) -> int:
        return 5 * self.rows * self.columns

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        shape = (self.rows, self.columns)
        return (
            Tensor(role="input", dtype=self.dtype, shape=shape),
            Tensor(role="output", dtype=self.output or self.dtype, shape=shape),
        )


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows inside a wider buffer, as heads inside a projection. They have three indices, of which
    the last two have these `sizes`, and so many elements between them: `steps`. A row's values are
    contiguous."""

    sizes: tuple[int, int]
    steps: tuple[int, int, int]
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Norm(Unit):
    """A norm over the last axis of [rows, columns], after a residual sum: layer norm, RMS norm, or
    the row divided by its length."""

    kind: ClassVar[str] = "norm"
    rows: int
    columns: int
    form: Form = "layer"
    epsilon: float = 1e-5
    """Added to the variance or the mean square; the least length that a row is divided by."""
    scale: bool = True
    """Multiply by a float32 weight per column."""
    bias: bool = True
    residual: bool = False
    """Add a second input first."""
    keep_sum: bool = False
    """Also store that sum, in the unit's type."""
    output: Dtype | None = None
    """None means the unit's type."""
    x: Rows | None = None
    """Where the input's rows are; None means dense. The output is dense."""

    def __post_init__(self) -> None:
        if self.keep_sum and not self.residual:
            raise UsageError(msg("norm: without a residual there is no sum to keep"))
        if self.x is not None and (self.residual or self.rows % prod(self.x.sizes)):
            raise UsageError(msg("norm: the input's rows do not fit the others"))
        super().__post_init__()

    @property
    def dense(self) -> Norm:
        return replace(self, x=None)

    @property
    def label(self) -> str:
        extra = " + residual" * self.residual
        return f"{self.form} norm {self.rows}x{self.columns} {self.dtype}{extra}"

    @property
    def flops(self) -> int:
        return 8 * self.rows * self.columns

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        shape, out = (self.rows, self.columns), []
        x = shape if self.x is None else (self._extent(self.x),)
        out.append(Tensor(role="input", dtype=self.dtype, shape=x))
        if self.scale:
            out.append(Tensor(role="scale", dtype="float32", shape=(self.columns,)))
        if self.bias:
            out.append(Tensor(role="bias", dtype="float32", shape=(self.columns,)))
        if self.residual:
            out.append(Tensor(role="residual", dtype=self.dtype, shape=shape))
        out.append(Tensor(role="output", dtype=self.output or self.dtype, shape=shape))
        if self.keep_sum:
            out.append(Tensor(role="sum", dtype=self.dtype, shape=shape))
        return tuple(out)

    def _extent(self, x: Rows) -> int:
        sizes = (self.rows // prod(x.sizes), *x.sizes)
        last = sum((size - 1) * step for size, step in zip(sizes, x.steps, strict=True))
        return x.offset + last + self.columns
