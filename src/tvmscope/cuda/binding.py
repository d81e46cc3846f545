"""A unit and a configuration as a kernel's constants, arguments and grid; no Triton needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvmscope.cuda.config import Config
from tvmscope.cuda.units import Conv2d, Epilogue, Matmul, Tensor, Unit
from tvmscope.errors import UsageError

PARAMETERS = {
    "input": "x",
    "weight": "w",
    "second": "w",
    "bias": "bias",
    "residual": "residual",
    "output": "y",
    "workspace": "workspace",
    "counters": "counters",
}
"""The kernel parameter of each role."""

_EARLY_SUMS = 32
"""Residuals of so many values per thread are fetched before the main loop, to hide their latency;
more would take its registers."""


@dataclass(frozen=True, kw_only=True)
class Binding:
    """What makes a kernel out of a template: `function` is `module:name`, `absent` are parameters
    that this unit does not have."""

    function: str
    constants: dict[str, Any]
    arguments: tuple[Tensor, ...]
    absent: tuple[str, ...]
    grid: tuple[int, int, int]


def bind(unit: Unit, config: Config) -> Binding:
    """The binding of a unit; a template that cannot compute it is refused."""
    maker = _MAKERS.get((unit.kind, config.template))
    if maker is None:
        raise UsageError(f"{config.template} does not compute {unit.kind}")
    return maker(unit, config)


def _ceil(value: int, step: int) -> int:
    return -(-value // step)


def _conv2d(unit: Conv2d, config: Config) -> Binding:
    channels, outputs = unit.c // unit.groups, unit.oc // unit.groups
    tiles = _ceil(unit.m, config.m) * _ceil(outputs, config.n) * unit.groups
    return Binding(
        function="tvmscope.cuda.templates.conv2d:conv2d",
        constants={
            **_image(unit),
            "C": channels,
            "OC": outputs,
            "G": unit.groups,
            "X_PITCH": unit.input.pitch or unit.c,
            "X_OFFSET": unit.input.offset,
            "Y_PITCH": unit.output.pitch or unit.oc,
            "Y_OFFSET": unit.output.offset,
            "Z_PITCH": unit.residual.pitch or unit.oc,
            "Z_OFFSET": unit.residual.offset,
            "PRECISION": _precision(unit.math),
            **_epilogue(unit.epilogue),
            **_tile(unit.epilogue, config),
            "KN": config.layout == "kn",
        },
        **_arguments(unit, tiles, config),
        grid=(tiles, config.split, 1),
    )


def _image(unit: Conv2d) -> dict[str, Any]:
    return {
        "N": unit.n,
        "H": unit.h,
        "W": unit.w,
        "P": unit.p,
        "Q": unit.q,
        "R": unit.r,
        "S": unit.s,
        "STRIDE_H": unit.stride[0],
        "STRIDE_W": unit.stride[1],
        "PAD_H": unit.padding[0],
        "PAD_W": unit.padding[1],
        "DILATE_H": unit.dilation[0],
        "DILATE_W": unit.dilation[1],
        "PADDED": unit.padded,
    }


def _matmul(unit: Matmul, config: Config) -> Binding:
    a, b, y, z = unit.matrix_a, unit.matrix_b(config.layout), unit.matrix_y, unit.matrix_z
    tiles = _ceil(unit.m, config.m) * _ceil(unit.n, config.n)
    return Binding(
        function="tvmscope.cuda.templates.matmul:matmul",
        constants={
            "M": unit.m,
            "N": unit.n,
            "K": unit.k,
            "INNER": unit.batch[1],
            "A_M": a.row,
            "A_K": a.column,
            "B_K": b.row,
            "B_N": b.column,
            "Y_M": y.row,
            "Y_N": y.column,
            "Z_M": z.row,
            "Z_N": z.column,
            **{
                f"{name}_{field.upper()}": getattr(matrix, field)
                for name, matrix in (("A", a), ("B", b), ("Y", y), ("Z", z))
                for field in ("outer", "inner", "offset")
            },
            "SCALE": unit.scale,
            "PRECISION": _precision(unit.math),
            "WEIGHT": unit.weight,
            **_epilogue(unit.epilogue),
            **_tile(unit.epilogue, config),
        },
        **_arguments(unit, tiles * unit.batches, config),
        grid=(tiles, config.split, unit.batches),
    )


def _precision(math: str) -> str:
    return "tf32" if math == "tensor" else math  # 16-bit products do not look at it


def _epilogue(epilogue: Epilogue) -> dict[str, Any]:
    first, second = (*epilogue.parameters, 0.0, 0.0)[:2]
    return {
        "BIAS": epilogue.bias,
        "RESIDUAL": epilogue.residual,
        "KIND": epilogue.activation,
        "FIRST": first,
        "SECOND": second,
    }


def _tile(epilogue: Epilogue, config: Config) -> dict[str, Any]:
    return {
        "TILE_M": config.m,
        "TILE_N": config.n,
        "TILE_K": config.k,
        "SPLIT": config.split,
        "GROUP": config.group,
        "EARLY": config.split == 1 and config.m * config.n <= _EARLY_SUMS * 32 * config.warps,
        "PDL": config.pdl,
    }


def _arguments(unit: Unit, tiles: int, config: Config) -> dict[str, Any]:
    """The unit's tensors, and what split-K needs: a part per block, a counter per tile."""
    tensors = list(unit.tensors)
    if config.split > 1:
        parts = (tiles, config.split, config.m, config.n)
        tensors.append(Tensor(role="workspace", dtype="float32", shape=parts))
        tensors.append(Tensor(role="counters", dtype="int32", shape=(tiles,)))
    order = list(dict.fromkeys(PARAMETERS.values()))
    taken = {PARAMETERS[t.role] for t in tensors}
    return {
        "arguments": tuple(sorted(tensors, key=lambda t: order.index(PARAMETERS[t.role]))),
        "absent": tuple(name for name in order if name not in taken),
    }


_MAKERS: dict[tuple[str, str], Callable[[Any, Config], Binding]] = {
    ("conv2d", "conv2d"): _conv2d,
    ("matmul", "matmul"): _matmul,
}
