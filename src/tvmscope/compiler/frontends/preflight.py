"""Lists all unsupported operators before compilation: refuses them, or runs them in a framework."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tvmscope.core.artifact import FRAMEWORKS, Fallback
from tvmscope.errors import ImportModelError
from tvmscope.messages import Text, msg


class Unsupported(ImportModelError):
    """This form of an operator has no kernel here; the message says which form."""


def refuse(model: str, unsupported: Counter[str], where: Mapping[str, Text]) -> None:
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


def in_framework(parts: Sequence[Fallback]) -> tuple[Text, ...]:
    """Return one line about all parts that are not compiled, with the reason of the first."""
    if not parts:
        return ()
    return (
        msg(
            "{operators} run in {framework}, in parts: {count}, as there is no kernel: {reason}",
            operators=[operator for part in parts for operator in part.operators],
            framework=FRAMEWORKS[parts[0].framework],
            count=len(parts),
            reason=parts[0].reason,
        ),
    )


def on_device(parts: Sequence[Fallback], device: str) -> tuple[Text, ...]:
    """One line about how these parts run beside kernels on a GPU; none for the CPU."""
    if not parts or device != "cuda":
        return ()
    where = (
        msg("on the GPU if it has CUDA, else on the CPU with copies of its inputs and results")
        if parts[0].framework == "torch"
        else msg("on the CPU, with copies of its inputs and results")
    )
    return (
        msg(
            "{framework} runs outside CUDA graphs, {where}",
            framework=FRAMEWORKS[parts[0].framework],
            where=where,
        ),
    )
