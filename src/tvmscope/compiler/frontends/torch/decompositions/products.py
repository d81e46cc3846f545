"""Products of matrices, and distances between rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
_MANY = 25
"""With more rows than this, PyTorch computes distances by a matrix product."""


def cdist(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """Compute the distances of all pairs of rows."""
    many = x.shape[-2] > _MANY or y.shape[-2] > _MANY
    if p == 2 and (compute_mode == 1 or (not compute_mode and many)):
        squares = x.pow(2).sum(-1, keepdim=True) + y.pow(2).sum(-1, keepdim=True).mT
        return (squares - 2 * torch.matmul(x, y.mT)).clamp(min=0.0).sqrt()
    apart = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (apart != 0).to(x.dtype).sum(-1)
    if p == float("inf"):
        return apart.amax(-1)
    if p == 1:
        return apart.sum(-1)
    return apart.pow(2).sum(-1).sqrt() if p == 2 else apart.pow(p).sum(-1).pow(1 / p)


def trilinear(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """Sum a product of three tensors; a bilinear layer consists of this operator."""
    tensors = []
    for tensor, axes in ((first, expand1), (second, expand2), (third, expand3)):
        for axis in axes:
            tensor = tensor.unsqueeze(axis)
        tensors.append(tensor)
    return (tensors[0] * tensors[1] * tensors[2]).sum(list(sumdim))


def addmm(added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """Add in two steps for other types than float32: TVM's product gives float32."""
    if x.dtype == torch.float32:
        return NotImplemented
    product = torch.matmul(x, y)
    product = product if alpha == 1 else product * alpha
    return product + (added if beta == 1 else added * beta)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    # without checks of the result, which would be side effects of the program
    aten.linalg_inv.default: lambda matrix: aten.linalg_inv_ex.default(matrix)[0],
    aten.linalg_cholesky.default: lambda matrix: aten.linalg_cholesky_ex.default(matrix)[0],
    aten.linalg_solve.default: lambda matrix, right: aten.linalg_solve_ex.default(matrix, right)[0],
    aten.addmm.default: addmm,
    aten.baddbmm.default: addmm,
    aten._cdist_forward.default: cdist,
    aten._trilinear.default: trilinear,
}
