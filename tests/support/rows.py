"""Keys of rows, by the backends' names as tests write them."""

from __future__ import annotations

from typing import Any

from tvmscope.core.precision import FLOAT32, Precision
from tvmscope.core.row import Family, RowKey, Variant

_FAMILIES: dict[str, Family] = {"tvmscope": "ours", "tvmscope-tuned": "ours", "tvm": "tvm"}


def key(
    backend: str, target: str = "cpu:znver4", precision: Precision | str = FLOAT32, **fields: Any
) -> RowKey:
    """The key of a backend's row; `fields` are those of its variant."""
    if isinstance(precision, str):
        precision = Precision.parse(precision)
    family = _FAMILIES.get(backend, "peer")
    variant = Variant(backend=backend, family=family, precision=precision, **fields)
    return RowKey(
        variant=variant, target=target, device="cuda" if target.startswith("cuda") else "cpu"
    )
