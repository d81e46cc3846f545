"""Represents a unit in a program: a host function that launches its kernel.

The function's body is one packed call with the pointers of its arguments. The kernel is known only
after the kernels are compiled; until then the function has its unit and configuration as
attributes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import s_tir, script, tirx

from tvmscope.cuda import config as configs
from tvmscope.cuda import units
from tvmscope.cuda.binding import bind
from tvmscope.cuda.config import Config
from tvmscope.cuda.units import Conv2d, Tensor, Unit

UNIT = "tvmscope.unit"
CONFIG = "tvmscope.config"
OUTPUTS = ("output", "sum", "workspace", "scratch")
_OPAQUE = 8
"""TVM's OpPatternKind of operators that are never fused."""

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a compiled kernel is started: by which packed function, and on which grid; without
    threads, the function needs only the pointers."""

    name: str
    threads: int
    grid: tuple[int, int, int]
    shared_bytes: int
    hidden_pointers: int


def arguments(unit: Unit, config: Config) -> tuple[Tensor, ...]:
    """Return the kernel's arguments in its own order."""
    return bind(unit, config).arguments


def hint(unit: Unit) -> str:
    """Return a name for the function: the unit's kind and what follows in it."""
    epilogue = getattr(unit, "epilogue", None)
    parts = [unit.kind]
    if epilogue is not None:
        parts += ["bias"] * epilogue.bias + ["add"] * (epilogue.residual in ("before", "after"))
        parts += [epilogue.activation] * (epilogue.activation != "none")
        parts += ["multiply"] * (epilogue.residual == "factor")
    if isinstance(unit, Conv2d) and unit.pooled is not None:
        parts.append("pool")
    return re.sub(r"\W", "_", "_".join(parts))


def function(
    unit: Unit, config: Config, shapes: Shapes, launch: Launch | None = None
) -> tirx.PrimFunc:
    """Return the host function; `shapes` are those of the program's tensors by role."""
    tensors = arguments(unit, config)
    ordered = [t for t in tensors if t.role not in OUTPUTS] + _outputs(tensors)
    params = ", ".join(
        f'{t.role}: T.Buffer({shapes.get(t.role, t.shape)!r}, "{t.dtype}")' for t in ordered
    )
    attributes = {
        "tirx.noalias": True,
        "tirx.is_scheduled": True,
        "op_pattern": _OPAQUE,
        "tvmscope.rule": config.rule,
        UNIT: json.dumps(unit.to_json(), sort_keys=True),
        CONFIG: json.dumps(configs.to_json(config), sort_keys=True),
    }
    body = "0" if launch is None else _packed(tensors, launch)
    source = "\n".join(
        (
            "@T.prim_func(private=True)",
            f"def kernel({params}):",
            f"    T.func_attr({attributes!r})",
            f"    T.evaluate({body})",
        )
    )
    parsed: tirx.PrimFunc = script.from_source(source, extra_vars={"T": script.tirx})
    block = s_tir.SBlock([], [], [], "root", parsed.body)  # TVM's passes expect it in a kernel
    return parsed.with_body(s_tir.SBlockRealize([], True, block))


def _outputs(tensors: Sequence[Tensor]) -> list[Tensor]:
    return sorted((t for t in tensors if t.role in OUTPUTS), key=lambda t: OUTPUTS.index(t.role))


def _packed(tensors: Sequence[Tensor], launch: Launch) -> str:
    given = [f"{t.role}.data" for t in tensors]
    if launch.threads:
        given += ["T.int64(0)"] * launch.hidden_pointers
        given += [str(launch.threads), *(str(g) for g in launch.grid), str(launch.shared_bytes)]
    return f'T.call_packed("{launch.name}", {", ".join(given)})'


def read(func: tirx.PrimFunc) -> tuple[Unit, Config] | None:
    """Return the unit and the configuration of a function that launches one."""
    if not func.attrs or UNIT not in func.attrs:
        return None
    unit = units.from_json(json.loads(str(func.attrs[UNIT])))
    return unit, configs.from_json(json.loads(str(func.attrs[CONFIG])))


def shapes_of(func: tirx.PrimFunc) -> Shapes:
    """Return the shapes of a function's buffers by role."""
    found = {}
    for param in func.params:
        buffer = func.buffer_map[param] if hasattr(func, "buffer_map") else param
        found[str(buffer.name)] = tuple(int(d) for d in buffer.shape)
    return found
