"""Rewrites operators of PyTorch with others that are imported: one file per family.

A decomposition returns the result, or NotImplemented to keep the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import torch
from torch._decomp import decomposition_table

from tvmscope.compiler.frontends.torch.decompositions import (
    convolution,
    elementwise,
    indexing,
    norms,
    products,
    resampling,
    scans,
    windows,
)

_FAMILIES = (convolution, elementwise, indexing, norms, products, resampling, scans, windows)
_OURS: dict[Any, Callable[..., Any]] = {
    operator: decompose
    for family in _FAMILIES
    for operator, decompose in family.DECOMPOSITIONS.items()
}
_aten = torch.ops.aten
_KEPT = (
    _aten.lstm.input, _aten.gru.input, _aten.rnn_tanh.input, _aten.rnn_relu.input,
    _aten.max_pool1d.default, _aten.max_pool2d.default, _aten.max_pool3d.default,
    _aten.multilabel_margin_loss_forward.default,
)  # fmt: skip
"""Operators that stay whole: PyTorch would unroll steps and compute indices of maxima, and its
decomposition of the last one gives another result than its kernel."""


def table(converted: Container[str]) -> dict[Any, Callable[..., Any]]:
    """Return the decompositions, given the names of operators that have a converter.

    PyTorch's own decompositions are used for all others that have one.
    """
    made: dict[Any, Callable[..., Any]] = torch.export.default_decompositions()
    for operator, decompose in decomposition_table.items():
        if not isinstance(operator, torch._ops.OpOverload):
            continue
        name = operator.__name__.partition(".")[0]
        if operator.__name__ in converted and name not in _WRONG:
            continue
        if name not in _UNUSED and (not _is_reference(decompose) or name in _REFERENCES):
            made[operator] = decompose
    made.update(_OURS)
    for operator in _KEPT:
        made.pop(operator, None)
    return made


def _is_reference(decompose: Callable[..., Any]) -> bool:
    """Whether it is a PyTorch reference: these consist of primitives, which have no converter."""
    return decompose.__module__.startswith("torch._refs")


_WRONG = frozenset(("grid_sampler_2d",))
"""Operators whose converter in TVM gives a wrong result."""
_REFERENCES = frozenset(("tril_indices", "triu_indices"))
_UNUSED = frozenset(("bernoulli", "native_dropout", "rand_like", "randn_like", "uniform"))
"""Their decompositions draw other random numbers."""
