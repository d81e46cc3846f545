"""Units that normalise rows: softmax and norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tvmscope.cuda.units.base import Dtype, Tensor, Unit
from tvmscope.errors import UsageError
from tvmscope.messages import msg


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
class Norm(Unit):
    """Layer norm or RMS norm over the last axis of [rows, columns], after a residual sum."""

    kind: ClassVar[str] = "norm"
    rows: int
    columns: int
    form: Literal["layer", "rms"] = "layer"
    epsilon: float = 1e-5
    scale: bool = True
    """Multiply by a float32 weight per column."""
    bias: bool = True
    residual: bool = False
    """Add a second input first."""
    keep_sum: bool = False
    """Also store that sum, in the unit's type."""
    output: Dtype | None = None
    """None means the unit's type."""

    def __post_init__(self) -> None:
        if self.keep_sum and not self.residual:
            raise UsageError(msg("norm: without a residual there is no sum to keep"))
        super().__post_init__()

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
        out.append(Tensor(role="input", dtype=self.dtype, shape=shape))
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
