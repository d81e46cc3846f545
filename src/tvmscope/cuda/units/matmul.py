"""The matrix product unit, and matrices inside buffers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from tvmscope.cuda.units.base import (
    Epilogue,
    Math,
    Tensor,
    Unit,
    check_math,
    contraction_tensors,
    tail_label,
    type_label,
)
from tvmscope.errors import UsageError
from tvmscope.messages import msg


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A matrix inside a buffer: elements between rows, between columns, and between the matrices of
    the batch along its two axes."""

    row: int
    column: int
    outer: int = 0
    inner: int = 0
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Matmul(Unit):
    """`batch` products [m, k] x [k, n], scaled. If `b` is None, the right side is a weight [k, n]
    that is packed for the kernel; otherwise the program computes it, and `b` is its layout."""

    kind: ClassVar[str] = "matmul"
    m: int
    n: int
    k: int
    batch: tuple[int, int] = (1, 1)
    a: Matrix | None = None
    b: Matrix | None = None
    y: Matrix | None = None
    z: Matrix | None = None
    """The layout of the residual; None means the output's dense form."""
    weight: bool = True
    scale: float = 1.0
    math: Math = "tensor"
    epilogue: Epilogue = field(default_factory=Epilogue)

    def __post_init__(self) -> None:
        check_math(self.kind, self.dtype, self.math)
        if self.weight and self.b is not None:
            raise UsageError(msg("matmul: a packed weight has no strides of its own"))
        if self.batch[0] * self.batch[1] > 65535:
            raise UsageError(
                msg(
                    "matmul: a batch of {batch} exceeds the grid's third axis",
                    batch=str(self.batch),
                )
            )
        for side in (self.matrix_a, self.matrix_b("kn")):
            if 1 not in (side.row, side.column):
                raise UsageError(msg("matmul: no axis of {side} is contiguous", side=str(side)))
        super().__post_init__()

    @property
    def batches(self) -> int:
        return self.batch[0] * self.batch[1]

    @property
    def matrix_a(self) -> Matrix:
        return self.a or self._dense(self.m, self.k)

    @property
    def matrix_y(self) -> Matrix:
        return self.y or self._dense(self.m, self.n)

    @property
    def matrix_z(self) -> Matrix:
        return self.z or self._dense(self.m, self.n)

    def matrix_b(self, layout: str) -> Matrix:
        """Return the right side's strides; those of a weight follow from its packed `layout`."""
        if self.b is not None:
            return self.b
        if not self.weight:
            return self._dense(self.k, self.n)
        return Matrix(row=self.n, column=1) if layout == "kn" else Matrix(row=1, column=self.k)

    def _dense(self, rows: int, columns: int) -> Matrix:
        size = rows * columns
        return Matrix(row=columns, column=1, outer=size * self.batch[1], inner=size)

    @property
    def dense(self) -> Matmul:
        """The unit with its own row-major matrices; a transposed one is unchanged."""
        sides = {"a": self.a, "y": self.y, "z": self.z}
        rows = {name: None for name, side in sides.items() if side and side.column == 1}
        return replace(self, **rows)  # type: ignore[arg-type]  # all may be None

    @property
    def label(self) -> str:
        batch = "" if self.batches == 1 else f"{self.batches}x "
        return (
            f"matmul {batch}{self.m}x{self.n}x{self.k}"
            f" {type_label(self.dtype, self.math)}{tail_label(self.epilogue)}"
        )

    @property
    def flops(self) -> int:
        return 2 * self.batches * self.m * self.n * self.k

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        b = (
            (self.k, self.n)
            if self.weight
            else (self._extent(self.matrix_b("kn"), self.k, self.n),)
        )
        return contraction_tensors(
            self.dtype,
            self.epilogue,
            x=(self._extent(self.matrix_a, self.m, self.k),),
            w=b,
            bias=(self.n,),
            residual=(self._extent(self.matrix_z, self.m, self.n),),
            y=(self._extent(self.matrix_y, self.m, self.n),),
            second="weight" if self.weight else "second",
        )

    def _extent(self, matrix: Matrix, rows: int, columns: int) -> int:
        """Return the number of elements of the smallest buffer for the matrices of a batch."""
        outer, inner = self.batch
        last = (
            matrix.offset
            + (rows - 1) * matrix.row
            + (columns - 1) * matrix.column
            + (outer - 1) * matrix.outer
            + (inner - 1) * matrix.inner
        )
        return last + 1
