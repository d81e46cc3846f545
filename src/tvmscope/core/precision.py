"""How a model computes: the type of its numbers, and how exactly they are multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from tvmscope.errors import SchemaError, UsageError
from tvmscope.messages import msg

Dtype = Literal["float32", "float16", "bfloat16"]
Math = Literal["default", "tf32"]

_DTYPES: tuple[str, ...] = get_args(Dtype)
_MATHS: tuple[str, ...] = get_args(Math)
_WORDS: dict[str, Dtype] = {
    "float32": "float32", "fp32": "float32",
    "float16": "float16", "fp16": "float16", "half": "float16",
    "bfloat16": "bfloat16", "bf16": "bfloat16",
    "tf32": "float32",
}  # fmt: skip
"""The words that a user may write; `tf32` is also a math mode."""
_SHORT: dict[str, str] = {"float16": "fp16", "bfloat16": "bf16"}
"""A type's name in labels; float32 is omitted."""
_TOLERANCES: dict[str, float] = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
_TF32_TOLERANCE = 1e-2
"""Products have float16's ten bits of mantissa; stored values keep float32's."""


@dataclass(frozen=True, order=True)
class Precision:
    """A type of numbers and a math mode."""

    dtype: Dtype = "float32"
    math: Math = "default"
    """`tf32` multiplies float32 numbers on tensor cores with ten bits of mantissa where PyTorch's
    defaults do: in convolutions, not in matrix products. `default` rounds no product to fewer bits
    than `dtype` has: every backend is configured not to use TF32."""

    def __post_init__(self) -> None:
        if self.math == "tf32" and self.dtype != "float32":
            raise ValueError(f"TF32 is a way to multiply float32, not {self.dtype}")

    @classmethod
    def parse(cls, word: str) -> Self:
        """Parse a user's word: `fp16`, `float16`, `half` ..."""
        if word not in _WORDS:
            raise UsageError(
                msg("unknown precision '{word}'; use float32, tf32, float16 or bfloat16", word=word)
            )
        return cls(_WORDS[word], "tf32" if word == "tf32" else "default")

    @property
    def label(self) -> str:
        """The precision's part of a row's label; empty for plain float32."""
        math = "" if self.math == "default" else self.math
        return " ".join(part for part in (_SHORT.get(self.dtype, ""), math) if part)

    @property
    def is_half(self) -> bool:
        """Whether its numbers have 16 bits."""
        return self.dtype != "float32"

    @property
    def tolerance(self) -> float:
        """The largest accepted max|a-b| / max|ref|, unless the user sets another."""
        return _TF32_TOLERANCE if self.math == "tf32" else _TOLERANCES[self.dtype]

    def __str__(self) -> str:
        return self.dtype if self.math == "default" else f"{self.dtype}/{self.math}"

    def to_json(self) -> str:
        """Return `float16`, or `float32/tf32` if the math is not the default."""
        return str(self)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read the output of `to_json`; files older than math modes contain only the type."""
        dtype, _slash, math = data.partition("/") if isinstance(data, str) else ("", "", "")
        math = math or "default"
        if dtype not in _DTYPES or math not in _MATHS:
            known = f"{', '.join(_DTYPES)}, alone or with one of /{', /'.join(_MATHS)}"
            raise SchemaError(
                msg("'precision': {data} is none of {known}", data=repr(data), known=known)
            )
        try:
            return cls(dtype, math)  # type: ignore[arg-type]  # both were looked up above
        except ValueError as e:
            raise SchemaError(msg("'precision': {reason}", reason=str(e))) from e


FLOAT32 = Precision()
TF32 = Precision("float32", "tf32")
FLOAT16 = Precision("float16")
BFLOAT16 = Precision("bfloat16")
