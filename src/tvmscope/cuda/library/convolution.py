"""Describes a unit as one convolution of cuDNN: which units can be one, and the call.

cuDNN computes a graph: the convolution with sums in float32, then bias, residual and activation in
float32, then one rounding. The bias has the output's type, because the engines that need no
compiler on loading take no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tvmscope.cuda.config import Config
from tvmscope.cuda.library.operands import TRIED, arguments, types_illegal, workspace_bytes
from tvmscope.cuda.units import Conv2d, Epilogue, Unit
from tvmscope.errors import UsageError
from tvmscope.messages import Text, msg
from tvmscope.storage.codec import encode

NEEDS = {"cuDNN": "9"}
"""The library that loading a model with such calls needs, and its oldest major version."""
_ACTIVATIONS = (
    "none", "relu", "relu6", "clip", "leaky_relu", "sigmoid", "silu", "gelu", "gelu_tanh",
)  # fmt: skip
_EXACT = 2
"""Engines of cuDNN that multiply float32 without tensor cores (on an H200 it proposes two)."""
Shape = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class ConvolutionCall:
    """A convolution and what follows it in one call; tensors are dense, channels contiguous."""

    library: Literal["cudnn"] = "cudnn"
    unit_key: str
    config: Config
    x: Shape
    """Images, channels, height, width; so are all shapes."""
    w: Shape
    """Output channels, channels of a group, height and width of the window."""
    y: Shape
    stride: tuple[int, int]
    padding: Shape
    """Padding: top, left, bottom, right."""
    dilation: tuple[int, int]
    dtype: str
    output: str
    sums: Literal["float32", "tf32"]
    """How float32 values are multiplied: exactly, or rounded to TF32."""
    steps: tuple[str, ...]
    """What follows the convolution: `bias`, `residual` and an activation, in their order."""
    parameters: tuple[float, ...]
    """Those of the activation."""
    algorithm: int
    """Its index in the list of engines that the library proposes; the list is requested again on
    loading, because an engine's number is valid for one version of the library only."""
    workspace_bytes: int
    arguments: tuple[str, ...]
    """The roles of its pointers, in order."""

    @property
    def hidden_pointers(self) -> int:
        """None after its arguments, unlike generated kernels."""
        return 0

    def to_json(self) -> dict[str, Any]:
        """Return the call's form in artifacts and files."""
        return {name: encode(getattr(self, name)) for name in self.__dataclass_fields__}


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
        unit_key=unit.key,
        config=config,
        x=(unit.n, unit.c, unit.h, unit.w),
        w=(unit.oc, unit.c // unit.groups, unit.r, unit.s),
        y=(unit.n, unit.oc, unit.p, unit.q),
        stride=unit.stride,
        padding=unit.padding,
        dilation=unit.dilation,
        dtype=unit.dtype,
        output=unit.epilogue.output or unit.dtype,
        sums="tf32" if unit.math == "tf32" else "float32",
        steps=_steps(unit.epilogue),
        parameters=unit.epilogue.parameters,
        algorithm=config.algorithm,
        workspace_bytes=workspace_bytes(unit),
        arguments=tuple(t.role for t in arguments(unit)),
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
