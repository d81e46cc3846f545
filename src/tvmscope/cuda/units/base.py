"""The common parts of all units: types, tensors, the epilogue, a key."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.storage.codec import encode

Dtype = Literal["float16", "bfloat16", "float32"]
Math = Literal["tensor", "tf32", "tf32x3", "ieee"]
"""How products are formed: 16-bit values on tensor cores; float32 rounded to TF32, as three TF32
products (close to float32), or exactly. Sums are float32 always."""
Residual = Literal["none", "before", "after", "factor"]
Activation = Literal[
    "none", "relu", "relu6", "clip", "leaky_relu", "sigmoid", "silu", "hardswish", "gelu",
    "gelu_tanh", "quick_gelu", "tanh", "elu", "selu", "softplus", "mish", "softsign",
    "relu_squared",
]  # fmt: skip

ITEM_BYTES: dict[str, int] = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4}
_PARAMETERS = {"clip": 2, "leaky_relu": 1}
_MOST_ELEMENTS = 2**31 - 1  # kernels compute addresses in 32 bits


@dataclass(frozen=True, kw_only=True)
class Epilogue:
    """The operators between a sum and its store: bias, residual added "before", activation,
    residual added "after" or multiplied as a "factor", cast to `output` (None: the unit's type).

    The bias is float32, the residual has the unit's type and the output's shape."""

    bias: bool = False
    residual: Residual = "none"
    activation: Activation = "none"
    parameters: tuple[float, ...] = ()
    """Lower and upper limit of `clip`, slope of `leaky_relu`."""
    output: Dtype | None = None

    def __post_init__(self) -> None:
        wanted = _PARAMETERS.get(self.activation, 0)
        if len(self.parameters) != wanted:
            raise UsageError(
                msg(
                    "activation '{activation}' takes {wanted} parameters, got {count}",
                    activation=self.activation,
                    wanted=wanted,
                    count=len(self.parameters),
                )
            )


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An argument of a kernel: its role, and its dense buffer."""

    role: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class Unit(ABC):
    """The base of all units."""

    kind: ClassVar[str]
    dtype: Dtype

    @cached_property
    def key(self) -> str:
        """The unit's name in records and files."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def to_json(self) -> dict[str, Any]:
        """Return the unit as a JSON object; fields at their defaults are omitted."""
        return {"kind": self.kind, **_without_defaults(self)}

    @property
    @abstractmethod
    def label(self) -> str:
        """A short description of the unit, for people."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Multiplications and additions of the mathematical definition."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs, weights and the output, in the order of the kernel's arguments."""

    @cached_property
    def moved_bytes(self) -> int:
        """The bytes of every tensor, counted once."""
        return sum(t.size_bytes for t in self.tensors)

    @property
    def dense(self) -> Unit:
        """The same computation over its own dense tensors: records are shared by this form."""
        return self

    def tensor(self, role: str) -> Tensor | None:
        """Return the tensor with this role; None if the unit has none."""
        return next((t for t in self.tensors if t.role == role), None)

    def __post_init__(self) -> None:
        for tensor in self.tensors:
            if tensor.elements > _MOST_ELEMENTS:
                raise UsageError(
                    msg(
                        "{kind}: {role} has {elements} elements; kernels address at most "
                        "{most_elements}",
                        kind=self.kind,
                        role=tensor.role,
                        elements=tensor.elements,
                        most_elements=_MOST_ELEMENTS,
                    )
                )
            if tensor.elements <= 0:
                raise UsageError(
                    msg(
                        "{kind}: {role} is empty: {shape}",
                        kind=self.kind,
                        role=tensor.role,
                        shape=str(tensor.shape),
                    )
                )


def _without_defaults(value: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in dataclasses.fields(value):
        mine = getattr(value, item.name)
        default = item.default
        if item.default_factory is not dataclasses.MISSING:
            default = item.default_factory()
        if mine != default:
            nested = dataclasses.is_dataclass(mine) and not isinstance(mine, type)
            out[item.name] = _without_defaults(mine) if nested else encode(mine)
    return out


def check_math(kind: str, dtype: str, products: str) -> None:
    """Raise if the type does not support this multiplication."""
    if products != "ieee" and (dtype == "float32") == (products == "tensor"):
        raise UsageError(
            msg(
                "{kind}: '{products}' is no way to multiply {dtype}",
                kind=kind,
                products=products,
                dtype=dtype,
            )
        )


def contraction_tensors(
    dtype: str,
    epilogue: Epilogue,
    *,
    x: tuple[int, ...],
    w: tuple[int, ...],
    bias: tuple[int, ...],
    residual: tuple[int, ...],
    y: tuple[int, ...],
    second: str = "weight",
) -> tuple[Tensor, ...]:
    out = [Tensor(role="input", dtype=dtype, shape=x), Tensor(role=second, dtype=dtype, shape=w)]
    if epilogue.bias:
        out.append(Tensor(role="bias", dtype="float32", shape=bias))
    if epilogue.residual != "none":
        out.append(Tensor(role="residual", dtype=dtype, shape=residual))
    out.append(Tensor(role="output", dtype=epilogue.output or dtype, shape=y))
    return tuple(out)


def type_label(dtype: str, products: str) -> str:
    """Return the type, or its multiplication mode if there is a choice."""
    if products == "tensor":
        return dtype
    return products if dtype == "float32" else f"{dtype} {products}"


def tail_label(epilogue: Epilogue) -> str:
    """Return a short description of the epilogue."""
    tail = ["bias"] if epilogue.bias else []
    tail += ["residual"] if epilogue.residual == "before" else []
    tail += [epilogue.activation] if epilogue.activation != "none" else []
    tail += ["residual"] if epilogue.residual == "after" else []
    factor = " * residual" if epilogue.residual == "factor" else ""
    return "".join(f" + {part}" for part in tail) + factor
