"""Element-wise operators in forms that TVM's importer takes for simpler ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def elu(data: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """Compute ELU with all of its scales, which SELU and CELU use."""
    below = torch.expm1(data * input_scale) * (alpha * scale)
    return torch.where(data > 0, data * scale, below)


def rrelu(
    data: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """Compute RReLU outside of training, where the slope is the mean."""
    if training:
        return NotImplemented
    return torch.where(data >= 0, data, data * ((lower + upper) / 2)), noise


def _compared(operator: Any) -> Callable[..., Any]:
    """Like `_promoted`; booleans become integers, because TVM would compare them as floats."""
    promoted = _promoted(operator)

    def decompose(data: Tensor, other: Any) -> Any:
        if torch.result_type(data, other) != torch.bool:
            return promoted(data, other)
        second = other.to(torch.int8) if isinstance(other, Tensor) else int(other)
        return operator(data.to(torch.int8), second)

    return decompose


def _of_truth(operator: Any) -> Callable[..., Any]:
    """Convert the input to booleans: every value but 0 is true."""

    def decompose(data: Tensor, *args: Any, **kwargs: Any) -> Any:
        if data.dtype == torch.bool:
            return NotImplemented
        return operator(data != 0, *args, **kwargs)

    return decompose


def divide(data: Tensor, other: Any, *, rounding_mode: str | None) -> Any:
    """Divide in one type: a number in the graph would be int32 or float32."""
    kind = torch.result_type(data, other)
    if rounding_mode is None:
        return torch.true_divide(data, other)
    if isinstance(other, Tensor) and data.dtype == other.dtype == kind:
        return NotImplemented
    if not isinstance(other, Tensor):
        other = torch.full((), other, dtype=kind, device=data.device)
    return aten.div.Tensor_mode(data.to(kind), other.to(kind), rounding_mode=rounding_mode)


def floor_divide(data: Tensor, other: Any) -> Any:
    """Divide with the general division."""
    return aten.div.Tensor_mode(data, other, rounding_mode="floor")


def _promoted(operator: Any, *, to_float: bool = False) -> Callable[..., Any]:
    """Convert both tensors to the type that PyTorch computes in."""

    def decompose(first: Any, second: Any, **kwargs: Any) -> Any:
        kind = torch.result_type(first, second)
        if to_float and not (kind.is_floating_point or kind.is_complex):
            kind = torch.get_default_dtype()
        tensors = [x for x in (first, second) if isinstance(x, Tensor)]
        if kind.is_complex or all(x.dtype == kind for x in tensors):
            return NotImplemented
        first, second = (x.to(kind) if isinstance(x, Tensor) else x for x in (first, second))
        return operator(first, second, **kwargs)

    return decompose


def clamp(data: Tensor, low: Any = None, high: Any = None) -> Any:
    """Clamp integers with one bound: TVM would use infinity for the other."""
    if data.is_floating_point() or (low is not None and high is not None):
        return NotImplemented
    if low is not None:
        return torch.maximum(data, torch.full((), low, dtype=torch.result_type(data, low)))
    return torch.minimum(data, torch.full((), high, dtype=torch.result_type(data, high)))


def where(condition: Tensor, first: Tensor, second: Tensor) -> Any:
    """Convert both branches to the type of the result."""
    kind = torch.result_type(first, second)
    if first.dtype == second.dtype and condition.dtype == torch.bool:
        return NotImplemented
    return aten.where.self(condition.to(torch.bool), first.to(kind), second.to(kind))


def rsub(data: Tensor, other: Any, alpha: float = 1) -> Any:
    """Subtract with the factor `alpha`, which TVM's importer ignores."""
    kind = torch.result_type(data, other)
    if not isinstance(other, Tensor):
        other = torch.full((), other, dtype=kind, device=data.device)
    return aten.sub.Tensor(other, data if alpha == 1 else data * alpha)


def signbit(data: Tensor) -> Tensor:
    """Return the sign bit, also of a zero."""
    if not data.is_floating_point():
        return data < 0
    return (data < 0) | ((data == 0) & (1.0 / data < 0))


def copysign(data: Tensor, other: Tensor) -> Tensor:
    """Combine the magnitude of one with the sign of the other."""
    return torch.where(torch.signbit(other), -data.abs(), data.abs())


def hypot(first: Tensor, second: Tensor) -> Tensor:
    """Scale by the larger one, so that squares do not overflow."""
    a, b = first.abs(), second.abs()
    most, least = torch.maximum(a, b), torch.minimum(a, b)
    share = least / torch.where(most == 0, torch.ones_like(most), most)
    return most * torch.sqrt(1 + share * share)


def _without_nan(operator: Any) -> Callable[..., Any]:
    """Return the number if one operand is a number and the other NaN."""

    def decompose(first: Tensor, second: Tensor) -> Tensor:
        chosen: Tensor = operator(first, second)
        chosen = torch.where(torch.isnan(first), second, chosen)
        return torch.where(torch.isnan(second), first, chosen)

    return decompose


def _in_single(operator: Any) -> Callable[..., Any]:
    """Compute in float32: TVM's kernels of norms do not support bfloat16."""

    def decompose(data: Tensor, *args: Any) -> Any:
        if data.dtype != torch.bfloat16:
            return NotImplemented
        wide = [x.float() if isinstance(x, Tensor) else x for x in (data, *args)]
        return tuple(x.to(data.dtype) for x in operator(*wide))

    return decompose


_PROMOTED = (
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.maximum.default,
    aten.minimum.default, aten.remainder.Tensor, aten.remainder.Scalar, aten.fmod.Tensor,
    aten.fmod.Scalar, aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar,
    aten.add.Scalar, aten.sub.Scalar, aten.mul.Scalar,
    aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor,
    aten.lt.Scalar, aten.le.Scalar, aten.gt.Scalar, aten.ge.Scalar,
)  # fmt: skip


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.elu.default: elu,
    aten.rrelu_with_noise_functional.default: rrelu,
    **{operator: _promoted(operator) for operator in _PROMOTED},
    aten.div.Tensor: _promoted(aten.div.Tensor, to_float=True),
    aten.div.Scalar: _promoted(aten.div.Scalar, to_float=True),
    aten.atan2.default: _promoted(aten.atan2.default, to_float=True),
    aten.rsub.Tensor: rsub,
    aten.rsub.Scalar: rsub,
    aten.cosh.default: lambda data: (torch.exp(data) + torch.exp(-data)) / 2,
    aten.sinh.default: lambda data: (torch.expm1(data) - torch.expm1(-data)) / 2,
    aten.clamp.default: clamp,
    aten.where.self: where,
    aten.signbit.default: signbit,
    aten.copysign.Tensor: copysign,
    aten.hypot.default: hypot,
    aten.fmax.default: _without_nan(torch.maximum),
    aten.fmin.default: _without_nan(torch.minimum),
    aten.exp2.default: lambda data: torch.exp(data * 0.6931471805599453),
    aten.native_layer_norm.default: _in_single(aten.native_layer_norm.default),
    aten._native_batch_norm_legit_no_training.default: _in_single(
        aten._native_batch_norm_legit_no_training.default
    ),
    aten.native_group_norm.default: _in_single(aten.native_group_norm.default),
    aten.div.Tensor_mode: divide,
    aten.div.Scalar_mode: divide,
    aten.floor_divide.default: floor_divide,
    aten.eq.Scalar: _compared(aten.eq.Scalar),
    aten.ne.Scalar: _compared(aten.ne.Scalar),
    aten.eq.Tensor: _compared(aten.eq.Tensor),
    aten.ne.Tensor: _compared(aten.ne.Tensor),
    aten.any.dim: _of_truth(aten.any.dim),
    aten.any.dims: _of_truth(aten.any.dims),
}
