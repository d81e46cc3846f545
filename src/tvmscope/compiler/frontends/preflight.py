"""The check before anything compiles: every unsupported operator, with its count and a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tvmscope.errors import ImportModelError


def refuse(model: str, unsupported: Counter[str], where: Mapping[str, str]) -> None:
    """Raise if there are unsupported operators, naming each one."""
    if not unsupported:
        return
    listed = ", ".join(
        f"{name} x{count} (first at {where[name]})" for name, count in unsupported.most_common()
    )
    raise ImportModelError(
        f"{model}: TVM cannot import {len(unsupported)} of its operators: {listed}; "
        "rewrite them with supported ones, or measure the other backends with --backends"
    )
