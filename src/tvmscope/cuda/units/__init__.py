"""The computations of kernels: frozen, hashable descriptions with every shape and stride.

Tensors are NHWC. A unit does not say how it is computed; that is a `Config`. Units are stored as
JSON (`to_json`, `from_json`); `key` is the same in every process and version, because it ignores
fields at their defaults. Any code may make units; only this room adds kinds of them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tvmscope.cuda.units.attention import Attention, Heads
from tvmscope.cuda.units.base import (
    ITEM_BYTES,
    Activation,
    Dtype,
    Epilogue,
    Math,
    Residual,
    Tensor,
    Unit,
)
from tvmscope.cuda.units.conv2d import Conv2d, Pooled, View
from tvmscope.cuda.units.group_norm import GroupNorm
from tvmscope.cuda.units.matmul import Matmul, Matrix
from tvmscope.cuda.units.norms import Form, Norm, Rows, Softmax
from tvmscope.cuda.units.pool import Pool
from tvmscope.errors import SchemaError
from tvmscope.messages import msg
from tvmscope.storage.codec import decode

__all__ = [
    "ITEM_BYTES", "KINDS", "Activation", "Attention", "Conv2d", "Dtype", "Epilogue", "Form",
    "GroupNorm", "Heads", "Math", "Matmul", "Matrix", "Norm", "Pool", "Pooled", "Residual", "Rows",
    "Softmax", "Tensor", "Unit", "View", "from_json",
]  # fmt: skip

KINDS: dict[str, type[Unit]] = {
    unit.kind: unit for unit in (Conv2d, Matmul, Attention, Softmax, Norm, GroupNorm, Pool)
}


def from_json(data: dict[str, Any]) -> Unit:
    """Read a unit from a JSON object; raise if this version does not know its kind."""
    kind = KINDS.get(str(data.get("kind")))
    if kind is None:
        raise SchemaError(
            msg(
                "unknown unit '{kind}': known are {kinds}",
                kind=str(data.get("kind")),
                kinds=list(KINDS),
            )
        )
    unknown = set(data) - {f.name for f in dataclasses.fields(kind)} - {"kind"}
    if unknown:
        raise SchemaError(
            msg("{kind}: unknown fields {unknown}", kind=kind.kind, unknown=sorted(unknown))
        )
    return decode(kind, data)
