"""Describes a unit as one matrix product of cuBLASLt: which units can be one, and the call.

cuBLASLt computes activation(scale * a x b + bias + residual) with sums in float32. The bias has the
output's type there, so it is rounded to it when a model is compiled, as in a model in half
precision anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tvmscope.cuda.config import Config, Layout
from tvmscope.cuda.library.operands import TRIED, Call, common, types_illegal
from tvmscope.cuda.units import ITEM_BYTES, Conv2d, Epilogue, Matmul, Matrix, Unit, View
from tvmscope.errors import UsageError
from tvmscope.messages import Text, msg

NEEDS = {"cublasLt": "12"}
"""The library that loading a model with such calls needs, and its oldest major version."""
_ALIGNED_BYTES = 16
_ACTIVATIONS = ("none", "relu", "gelu_tanh")


@dataclass(frozen=True, kw_only=True)
class Side:
    """A matrix in a buffer: elements between rows (`transposed`: between columns), between the
    products of the batch, and its offset."""

    pitch: int
    transposed: bool = False
    stride: int = 0
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class ProductCall(Call):
    """`batches` products [m, k] x [k, n] in one call; matrices are stored by rows."""

    library: Literal["cublaslt"] = "cublaslt"
    m: int
    n: int
    k: int
    batches: int
    a: Side
    b: Side
    y: Side
    z: Side
    """The sides of input, right operand, output and residual."""
    scale: float
    activation: str


def configs(unit: Unit, count: int = TRIED) -> Iterator[Config]:
    """Yield the first `count` calls to try: in the library's own order, for each weight layout."""
    if why_not(unit) is not None:
        return
    free = unit.tensor("weight") is not None
    layouts: tuple[Layout, ...] = ("kn", "nk") if free else ("kn",)
    for algorithm in range(-(-count // len(layouts))):
        for layout in layouts:
            yield config(algorithm, layout)


def config(algorithm: int, layout: Layout = "kn") -> Config:
    """Return the configuration of a library's call; it has no tile."""
    return Config(
        template="cublaslt", m=0, n=0, stages=0, warps=0, layout=layout, algorithm=algorithm
    )  # fmt: skip


def why_not(unit: Unit) -> Text | None:
    """Why the library cannot compute a unit in one call; None where it can."""
    if not isinstance(unit, Conv2d | Matmul):
        return msg("no library call computes {operator}", operator=unit.kind)
    if (why := types_illegal(unit) or _epilogue_illegal(unit.dtype, unit.epilogue)) is not None:
        return why
    if any(offset * ITEM_BYTES[unit.dtype] % _ALIGNED_BYTES for offset in _offsets(unit)):
        return msg("an operand does not begin at a multiple of {count} bytes", count=_ALIGNED_BYTES)
    if isinstance(unit, Conv2d):
        if unit.gated:
            return msg("the library multiplies its input by no factors")
        window = (unit.r, unit.s, *unit.stride, unit.groups)
        plain = window == (1, 1, 1, 1, 1) and not unit.padded and unit.pooled is None
        return None if plain else msg("a convolution with a window is no product of matrices")
    return _matrices_illegal(unit)


def _matrices_illegal(unit: Matmul) -> Text | None:
    written = (unit.matrix_y, *((unit.matrix_z,) if unit.epilogue.residual != "none" else ()))
    given = [(unit.matrix_a, unit.m, unit.k), (unit.matrix_b("kn"), unit.k, unit.n)]
    given += [(side, unit.m, unit.n) for side in written]
    if any(_by_rows(side, unit.m, unit.n) is not True for side in written):
        return msg("the output is not stored by rows")
    if any(_by_rows(*side) is None for side in given):
        return msg("rows of a matrix overlap")
    if any(_stride(unit, side) is None for side, _, _ in given):
        return msg("the batch has no single stride")
    return None


def _offsets(unit: Conv2d | Matmul) -> tuple[int, ...]:
    if isinstance(unit, Conv2d):
        return unit.input.offset, unit.output.offset, unit.residual.offset
    sides = (unit.matrix_a, unit.matrix_b("kn"), unit.matrix_y, unit.matrix_z)
    return tuple(side.offset for side in sides)


def _epilogue_illegal(dtype: str, epilogue: Epilogue) -> Text | None:
    if epilogue.activation not in _ACTIVATIONS:
        return msg("the library has no {activation}", activation=epilogue.activation)
    if epilogue.residual == "factor":
        return msg("the library multiplies by no residual")
    if epilogue.residual == "after" and epilogue.activation != "none":
        return msg("the library adds before the activation")
    if epilogue.residual != "none" and (epilogue.output or dtype) != dtype:
        return msg("the library adds what has the output's type")
    return None


def call_of(unit: Unit, config: Config) -> ProductCall:
    """Return the call that computes a unit; refused where there is none."""
    why = why_not(unit)
    if why is not None or not isinstance(unit, Conv2d | Matmul):
        raise UsageError(msg("{unit}: {why}", unit=unit.label, why=why or ""))
    m, n, k, batches, (a, b, y, z) = _sides(unit, config)
    return ProductCall(
        **common(unit, config),
        m=m,
        n=n,
        k=k,
        batches=batches,
        a=a,
        b=b,
        y=y,
        z=y if unit.epilogue.residual == "none" else z,
        scale=unit.scale if isinstance(unit, Matmul) else 1.0,
        activation=unit.epilogue.activation,
    )


Sides = tuple[Side, Side, Side, Side]


def _sides(unit: Conv2d | Matmul, config: Config) -> tuple[int, int, int, int, Sides]:
    if isinstance(unit, Conv2d):
        m, n, k = unit.m, unit.oc, unit.c
        weight = Side(pitch=n) if config.layout == "kn" else Side(pitch=k, transposed=True)
        a, y, z = (
            _channels(view, width)
            for view, width in ((unit.input, k), (unit.output, n), (unit.residual, n))
        )
        return m, n, k, 1, (a, weight, y, z)
    m, n, k = unit.m, unit.n, unit.k
    return m, n, k, unit.batches, (
        _matrix(unit, unit.matrix_a, m, k),
        _matrix(unit, unit.matrix_b(config.layout), k, n),
        _matrix(unit, unit.matrix_y, m, n),
        _matrix(unit, unit.matrix_z, m, n),
    )  # fmt: skip


def _channels(view: View, channels: int) -> Side:
    return Side(pitch=view.pitch or channels, offset=view.offset)


def _matrix(unit: Matmul, at: Matrix, rows: int, columns: int) -> Side:
    """Return a matrix with one contiguous axis; an axis of one element may have any stride."""
    by_rows = _by_rows(at, rows, columns)
    pitch = max(at.row, columns) if by_rows else max(at.column, rows)
    stride = _stride(unit, at) or 0
    return Side(pitch=pitch, transposed=not by_rows, stride=stride, offset=at.offset)


def _by_rows(at: Matrix, rows: int, columns: int) -> bool | None:
    """Whether rows are contiguous, or else columns; None if neither are without overlap."""
    if at.column == 1 and (at.row >= columns or rows == 1):
        return True
    return False if at.row == 1 and (at.column >= rows or columns == 1) else None


def _stride(unit: Matmul, at: Matrix) -> int | None:
    """Return the distance between products, if the batch's two axes have one stride."""
    outer, inner = unit.batch
    if outer == 1 or at.outer == inner * at.inner:
        return at.inner
    return at.outer if inner == 1 else None
