"""Describes a unit as one convolution of cuDNN: which units can be one, and the call.

cuDNN computes a graph: the convolution with sums in float32, then bias, residual and activation in
float32, then one rounding. The bias has the output's type, because the engines that need no
compiler on loading take no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tvmscope.cuda.config import Config
from tvmscope.cuda.library.operands import TRIED, Call, common, types_illegal
from tvmscope.cuda.units import Conv2d, Epilogue, Unit
from tvmscope.errors import UsageError
from tvmscope.messages import Text, msg

NEEDS = {"cuDNN": "9"}
"""The library that loading a model with such calls needs, and its oldest major version."""
_ACTIVATIONS = (
    "none", "relu", "relu6", "clip", "leaky_relu", "sigmoid", "silu", "gelu", "gelu_tanh",
)  # fmt: skip
_EXACT = 2
"""Engines of cuDNN that multiply float32 without tensor cores (on an H200 it proposes two)."""
Shape = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class ConvolutionCall(Call):
    """A convolution and what follows it in one call; tensors are dense, channels contiguous."""

    library: Literal["cudnn"] = "cudnn"
    x: Shape
    """Images, channels, height, width; so are all shapes."""
    w: Shape
    """Output channels, channels of a group, height and width of the window."""
    y: Shape
    stride: tuple[int, int]
    padding: Shape
    """Padding: top, left, bottom, right."""
    dilation: tuple[int, int]
    steps: tuple[str, ...]
    """What follows the convolution: `bias`, `residual` and an activation, in their order."""
    parameters: tuple[float, ...]
    """Those of the activation."""


def configs(unit: Unit, count: int = TRIED) -> Iterator[Config]:
    """Yield the first `count` calls to try, in the library's own order."""
    if isinstance(unit, Conv2d) and why_not(unit) is None:
        exact = unit.dtype == "float32" and unit.math != "tf32"
        yield from (config(n) for n in range(min(count, _EXACT) if exact else count))


def config(algorithm: int) -> Config:
    """Return the configuration of a call; the weight is [oc, r, s, c / groups], as it comes."""
    return Config(
        template="cudnn", m=0, n=0, stages=0, warps=0, layout="nk", algorithm=algorithm
    )  # fmt: skip


def why_not(unit: Unit) -> Text | None:
    """Why the library cannot compute a unit in one call; None where it can.

    A view of a wider tensor is refused: not every engine takes one, and a model must not meet that
    when it is loaded."""
    if not isinstance(unit, Conv2d):
        return msg("cuDNN is not called for {operator}", operator=unit.kind)
    if (why := types_illegal(unit)) is not None:
        return why
    if unit.epilogue.activation not in _ACTIVATIONS:
        return msg("the library has no {activation}", activation=unit.epilogue.activation)
    if unit.epilogue.residual == "factor":
        return msg("the library multiplies by no residual")
    if unit.gated:
        return msg("the library multiplies its input by no factors")
    if unit.pooled is not None:
        return msg("the library pools in another call")
    if [t.shape for t in unit.tensors] != [t.shape for t in unit.dense.tensors]:
        return msg("cuDNN is called for dense tensors only")
    return None


def call_of(unit: Unit, config: Config) -> ConvolutionCall:
    """Return the call that computes a unit; refused where there is none."""
    why = why_not(unit)
    if why is None and config.layout != "nk":
        why = msg("cuDNN takes weights n x k")
    if why is not None or not isinstance(unit, Conv2d):
        raise UsageError(msg("{unit}: {why}", unit=unit.label, why=why or ""))
    return ConvolutionCall(
        **common(unit, config),
        x=(unit.n, unit.c, unit.h, unit.w),
        w=(unit.oc, unit.c // unit.groups, unit.r, unit.s),
        y=(unit.n, unit.oc, unit.p, unit.q),
        stride=unit.stride,
        padding=unit.padding,
        dilation=unit.dilation,
        steps=_steps(unit.epilogue),
        parameters=unit.epilogue.parameters,
    )


def _steps(epilogue: Epilogue) -> tuple[str, ...]:
    """Return the operations in the order in which cuDNN has engines for them: a residual before
    the bias where it may be."""
    bias = ["bias"] if epilogue.bias else []
    activation = [epilogue.activation] if epilogue.activation != "none" else []
    residual = ["residual"] if epilogue.residual != "none" else []
    late = epilogue.residual == "after" and bool(activation)
    first, last = ([], residual) if late else (residual, [])
    return (*first, *bias, *activation, *last)
