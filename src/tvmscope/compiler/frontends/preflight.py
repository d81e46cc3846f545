"""The check before anything compiles: every unsupported operator, its count and one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tvmscope.errors import ImportModelError
from tvmscope.messages import msg


def refuse(model: str, unsupported: Counter[str], where: Mapping[str, str]) -> None:
    """Raise if there are unsupported operators, naming each one."""
    if not unsupported:
        return
    listed = [
        msg("{operator} x{count} (first at {place})", operator=name, count=n, place=where[name])
        for name, n in unsupported.most_common()
    ]
    raise ImportModelError(
        msg(
            "{model}: TVM cannot import {count} of its operators: {listed}; rewrite them with "
            "supported ones, or measure the other backends with --backends",
            model=model,
            count=len(unsupported),
            listed=listed,
        )
    )
