"""What a kernel computes: frozen, hashable descriptions that carry every shape and stride.

Tensors are NHWC. A unit says nothing about how it is computed; that is a `Config`. Units become
JSON and come back (`to_json`, `from_json`); `key` is the same in every process and version, as
fields at their defaults do not count.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from tvmscope.errors import SchemaError, UsageError
from tvmscope.storage.codec import decode, encode

Dtype = Literal["float16", "bfloat16", "float32"]
Math = Literal["tensor", "tf32", "tf32x3", "ieee"]
"""How products are formed: 16-bit values on tensor cores; float32 rounded to TF32, as three TF32
products (close to float32), or exactly. Sums are float32 always."""
Activation = Literal[
    "none", "relu", "relu6", "clip", "leaky_relu", "sigmoid", "silu", "hardswish", "gelu",
    "gelu_tanh",
]  # fmt: skip

ITEM_BYTES: dict[str, int] = {"float16": 2, "bfloat16": 2, "float32": 4, "int32": 4}
_PARAMETERS = {"clip": 2, "leaky_relu": 1}
_MOST_ELEMENTS = 2**31 - 1  # kernels compute addresses in 32 bits


@dataclass(frozen=True, kw_only=True)
class Epilogue:
    """What happens to a sum before it is stored, in this order: bias, residual "before",
    activation, residual "after", cast to `output` (None: the unit's type).

    The bias is float32, the residual has the unit's type and the output's shape."""

    bias: bool = False
    residual: Literal["none", "before", "after"] = "none"
    activation: Activation = "none"
    parameters: tuple[float, ...] = ()
    """Lower and upper limit of `clip`, slope of `leaky_relu`."""
    output: Dtype | None = None

    def __post_init__(self) -> None:
        wanted = _PARAMETERS.get(self.activation, 0)
        if len(self.parameters) != wanted:
            raise UsageError(
                f"activation '{self.activation}' takes {wanted} parameters,"
                f" got {len(self.parameters)}"
            )


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """An argument of a kernel: its role, and the dense buffer that holds it."""

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
class View:
    """Channels inside a wider NHWC tensor: `pitch` elements from pixel to pixel (None: the
    view's own channels), of which the view begins at `offset`."""

    pitch: int | None = None
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A matrix inside a buffer: elements from row to row, from column to column, and from one
    matrix of the batch to the next over its two axes."""

    row: int
    column: int
    outer: int = 0
    inner: int = 0
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The base of all units."""

    kind: ClassVar[str]
    dtype: Dtype

    @cached_property
    def key(self) -> str:
        """Names this unit in records and files."""
        text = json.dumps(to_json(self), sort_keys=True, separators=(",", ":"))
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def label(self) -> str:
        """The unit in a few words, for people."""
        raise NotImplementedError

    @property
    def flops(self) -> int:
        """Multiplications and additions of the mathematical definition."""
        raise NotImplementedError

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs, weights and the output, in the order of the kernel's arguments."""
        raise NotImplementedError

    @property
    def moved_bytes(self) -> int:
        """Every tensor once."""
        return sum(t.size_bytes for t in self.tensors)

    def tensor(self, role: str) -> Tensor | None:
        """The tensor of that role, where the unit has one."""
        return next((t for t in self.tensors if t.role == role), None)

    def __post_init__(self) -> None:
        for tensor in self.tensors:
            if tensor.elements > _MOST_ELEMENTS:
                raise UsageError(
                    f"{self.kind}: {tensor.role} has {tensor.elements} elements;"
                    f" kernels address at most {_MOST_ELEMENTS}"
                )
            if tensor.elements <= 0:
                raise UsageError(f"{self.kind}: {tensor.role} is empty: {tensor.shape}")


def _check_math(unit: Conv2d | Matmul | Attention) -> None:
    if (unit.dtype == "float32") == (unit.math == "tensor"):
        raise UsageError(f"{unit.kind}: '{unit.math}' is no way to multiply {unit.dtype}")


@dataclass(frozen=True, kw_only=True)
class Conv2d(Unit):
    """Convolution of NHWC images; the weight is [oc, r, s, c / groups] before it is packed."""

    kind: ClassVar[str] = "conv2d"
    n: int
    h: int
    w: int
    c: int
    oc: int
    r: int
    s: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Top, left, bottom, right."""
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    math: Math = "tensor"
    epilogue: Epilogue = field(default_factory=Epilogue)
    input: View = field(default_factory=View)
    residual: View = field(default_factory=View)
    output: View = field(default_factory=View)

    def __post_init__(self) -> None:
        _check_math(self)
        if self.c % self.groups or self.oc % self.groups:
            raise UsageError(
                f"conv2d: {self.c} -> {self.oc} channels are no {self.groups} equal groups"
            )
        if self.p < 1 or self.q < 1:
            raise UsageError(f"conv2d: a {self.r}x{self.s} window does not fit {self.h}x{self.w}")
        for name, view, channels in (
            ("input", self.input, self.c),
            ("residual", self.residual, self.oc),
            ("output", self.output, self.oc),
        ):
            if view.offset < 0 or view.offset + channels > (view.pitch or channels):
                raise UsageError(f"conv2d: {name} view {view} does not hold {channels} channels")
        super().__post_init__()

    @property
    def p(self) -> int:
        """Height of the output."""
        top, _, bottom, _ = self.padding
        return (self.h + top + bottom - self.dilation[0] * (self.r - 1) - 1) // self.stride[0] + 1

    @property
    def q(self) -> int:
        """Width of the output."""
        _, left, _, right = self.padding
        return (self.w + left + right - self.dilation[1] * (self.s - 1) - 1) // self.stride[1] + 1

    @property
    def depthwise(self) -> bool:
        """Whether each output channel sees one input channel."""
        return self.groups == self.c

    @property
    def m(self) -> int:
        """Output pixels: the rows of the implicit product."""
        return self.n * self.p * self.q

    @property
    def k(self) -> int:
        """Values under the window of one group."""
        return self.r * self.s * self.c // self.groups

    @property
    def padded(self) -> bool:
        """Whether a window can reach outside the image."""
        bottom = (self.p - 1) * self.stride[0] + (self.r - 1) * self.dilation[0] - self.padding[0]
        right = (self.q - 1) * self.stride[1] + (self.s - 1) * self.dilation[1] - self.padding[1]
        return any(self.padding[:2]) or bottom >= self.h or right >= self.w

    @property
    def label(self) -> str:
        groups = "" if self.groups == 1 else f" g{self.groups}"
        stride = "" if self.stride == (1, 1) else f"/{self.stride[0]}"
        return (
            f"{self.r}x{self.s} {self.c}->{self.oc}{groups} @{self.h}x{self.w}{stride}"
            f" b{self.n} {_type_label(self)}{_tail_label(self.epilogue)}"
        )

    @property
    def flops(self) -> int:
        return 2 * self.m * self.oc * self.k

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        pixels = (self.n, self.p, self.q)
        return _contraction_tensors(
            self.dtype,
            self.epilogue,
            x=(self.n, self.h, self.w, self.input.pitch or self.c),
            w=(self.oc, self.r, self.s, self.c // self.groups),
            bias=(self.oc,),
            residual=(*pixels, self.residual.pitch or self.oc),
            y=(*pixels, self.output.pitch or self.oc),
        )


@dataclass(frozen=True, kw_only=True)
class Matmul(Unit):
    """`batch` products [m, k] x [k, n], scaled. `b` None is a weight [k, n] that is packed as the
    kernel wants it; otherwise the right side is computed by the program and lies as `b` says."""

    kind: ClassVar[str] = "matmul"
    m: int
    n: int
    k: int
    batch: tuple[int, int] = (1, 1)
    a: Matrix | None = None
    b: Matrix | None = None
    y: Matrix | None = None
    z: Matrix | None = None
    """Where the residual lies; None: as the output's dense form."""
    weight: bool = True
    scale: float = 1.0
    math: Math = "tensor"
    epilogue: Epilogue = field(default_factory=Epilogue)

    def __post_init__(self) -> None:
        _check_math(self)
        if self.weight and self.b is not None:
            raise UsageError("matmul: a packed weight has no strides of its own")
        if self.batch[0] * self.batch[1] > 65535:
            raise UsageError(f"matmul: a batch of {self.batch} exceeds the grid's third axis")
        for side in (self.matrix_a, self.matrix_b("kn")):
            if 1 not in (side.row, side.column):
                raise UsageError(f"matmul: no axis of {side} is contiguous")
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
        """The right side's strides; a weight's are those of its packed `layout`."""
        if self.b is not None:
            return self.b
        if not self.weight:
            return self._dense(self.k, self.n)
        return Matrix(row=self.n, column=1) if layout == "kn" else Matrix(row=1, column=self.k)

    def _dense(self, rows: int, columns: int) -> Matrix:
        size = rows * columns
        return Matrix(row=columns, column=1, outer=size * self.batch[1], inner=size)

    @property
    def label(self) -> str:
        batch = "" if self.batches == 1 else f"{self.batches}x "
        return (
            f"matmul {batch}{self.m}x{self.n}x{self.k}"
            f" {_type_label(self)}{_tail_label(self.epilogue)}"
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
        return _contraction_tensors(
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
        """Elements of the smallest buffer that holds a matrix of the batch."""
        outer, inner = self.batch
        last = (
            matrix.offset
            + (rows - 1) * matrix.row
            + (columns - 1) * matrix.column
            + (outer - 1) * matrix.outer
            + (inner - 1) * matrix.inner
        )
        return last + 1


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Rows of heads inside a buffer: elements from batch to batch, head to head, row to row; a
    head's values are contiguous."""

    batch: int
    head: int
    row: int
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Attention(Unit):
    """softmax(scale * q k^T + mask) v, for each batch and head, in one kernel."""

    kind: ClassVar[str] = "attention"
    batch: int
    heads: int
    queries: int
    keys: int
    dim: int
    value_dim: int | None = None
    scale: float = 1.0
    causal: bool = False
    """Query i sees keys up to i + keys - queries."""
    q: Heads | None = None
    k: Heads | None = None
    v: Heads | None = None
    y: Heads | None = None
    """None: dense [batch, rows, heads, dim], as projections leave them."""
    mask: tuple[int, int, int] | None = None
    """Strides (batch, head, query) of an additive mask over the keys; 0 repeats it."""
    math: Math = "tensor"

    def __post_init__(self) -> None:
        _check_math(self)
        if self.batch * self.heads > 65535:
            raise UsageError(f"attention: {self.batch} x {self.heads} heads exceed the grid's axis")
        super().__post_init__()

    @property
    def dim_v(self) -> int:
        return self.value_dim or self.dim

    def heads_of(self, name: Literal["q", "k", "v", "y"]) -> Heads:
        """Where a tensor lies, dense when the unit does not say."""
        given: Heads | None = getattr(self, name)
        if given is not None:
            return given
        dim = self.dim if name in "qk" else self.dim_v
        rows = self.queries if name in "qy" else self.keys
        return Heads(batch=rows * self.heads * dim, head=dim, row=self.heads * dim)

    @property
    def label(self) -> str:
        extra = " causal" * self.causal + " masked" * (self.mask is not None)
        return (
            f"attention {self.batch}x{self.heads} {self.queries}x{self.keys}x{self.dim}"
            f" {_type_label(self)}{extra}"
        )

    @property
    def flops(self) -> int:
        pairs = self.batch * self.heads * self.queries * self.keys
        return 2 * pairs * (self.dim + self.dim_v) // (2 if self.causal else 1)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        def extent(name: Literal["q", "k", "v", "y"], rows: int, dim: int) -> tuple[int]:
            at = self.heads_of(name)
            return (
                at.offset + (self.batch - 1) * at.batch + (self.heads - 1) * at.head
                + (rows - 1) * at.row + dim,
            )  # fmt: skip

        out = [
            Tensor(role="query", dtype=self.dtype, shape=extent("q", self.queries, self.dim)),
            Tensor(role="key", dtype=self.dtype, shape=extent("k", self.keys, self.dim)),
            Tensor(role="value", dtype=self.dtype, shape=extent("v", self.keys, self.dim_v)),
        ]
        if self.mask is not None:
            batch, head, query = self.mask
            size = (self.batch - 1) * batch + (self.heads - 1) * head + (self.queries - 1) * query
            out.append(Tensor(role="mask", dtype=self.dtype, shape=(size + self.keys,)))
        y = extent("y", self.queries, self.dim_v)
        return (*out, Tensor(role="output", dtype=self.dtype, shape=y))


@dataclass(frozen=True, kw_only=True)
class Softmax(Unit):
    """Softmax over the last axis of [rows, columns], of scaled values."""

    kind: ClassVar[str] = "softmax"
    rows: int
    columns: int
    scale: float = 1.0

    @property
    def label(self) -> str:
        return f"softmax {self.rows}x{self.columns} {self.dtype}"

    @property
    def flops(self) -> int:
        return 5 * self.rows * self.columns

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        shape = (self.rows, self.columns)
        return (
            Tensor(role="input", dtype=self.dtype, shape=shape),
            Tensor(role="output", dtype=self.dtype, shape=shape),
        )


@dataclass(frozen=True, kw_only=True)
class Norm(Unit):
    """Layer norm or RMS norm over the last axis of [rows, columns], after a residual sum."""

    kind: ClassVar[str] = "norm"
    rows: int
    columns: int
    form: Literal["layer", "rms"] = "layer"
    epsilon: float = 1e-5
    scale: bool = True
    """Multiply by a float32 weight per column."""
    bias: bool = True
    residual: bool = False
    """Add a second input first."""
    keep_sum: bool = False
    """Store that sum too, in the unit's type."""

    def __post_init__(self) -> None:
        if self.keep_sum and not self.residual:
            raise UsageError("norm: without a residual there is no sum to keep")
        super().__post_init__()

    @property
    def label(self) -> str:
        extra = " + residual" * self.residual
        return f"{self.form} norm {self.rows}x{self.columns} {self.dtype}{extra}"

    @property
    def flops(self) -> int:
        return 8 * self.rows * self.columns

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        shape, out = (self.rows, self.columns), []
        out.append(Tensor(role="input", dtype=self.dtype, shape=shape))
        if self.scale:
            out.append(Tensor(role="scale", dtype="float32", shape=(self.columns,)))
        if self.bias:
            out.append(Tensor(role="bias", dtype="float32", shape=(self.columns,)))
        if self.residual:
            out.append(Tensor(role="residual", dtype=self.dtype, shape=shape))
        out.append(Tensor(role="output", dtype=self.dtype, shape=shape))
        if self.keep_sum:
            out.append(Tensor(role="sum", dtype=self.dtype, shape=shape))
        return tuple(out)


@dataclass(frozen=True, kw_only=True)
class Pool(Unit):
    """Largest or mean value under a window, NHWC; a global pool has the image as its window."""

    kind: ClassVar[str] = "pool"
    n: int
    h: int
    w: int
    c: int
    form: Literal["max", "mean"]
    r: int
    s: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Top, left, bottom, right."""
    count_padding: bool = True
    """Whether padding counts as zeros in a mean."""
    round_up: bool = False
    """PyTorch's ceil_mode: a last window that begins inside the image or its padding counts."""
    input: View = field(default_factory=View)
    output: View = field(default_factory=View)

    def __post_init__(self) -> None:
        if self.p < 1 or self.q < 1:
            raise UsageError(f"pool: a {self.r}x{self.s} window does not fit {self.h}x{self.w}")
        super().__post_init__()

    def _out(self, size: int, window: int, stride: int, before: int, after: int) -> int:
        room = size + before + after - window
        if not self.round_up:
            return room // stride + 1
        out = -(-room // stride) + 1
        # PyTorch: no window begins in the padding behind the image
        return out - 1 if (out - 1) * stride >= size + before else out

    @property
    def p(self) -> int:
        return self._out(self.h, self.r, self.stride[0], self.padding[0], self.padding[2])

    @property
    def q(self) -> int:
        return self._out(self.w, self.s, self.stride[1], self.padding[1], self.padding[3])

    @property
    def whole(self) -> bool:
        """Whether one window covers the image."""
        return (self.r, self.s) == (self.h, self.w) and not any(self.padding)

    @property
    def label(self) -> str:
        return (
            f"{self.form} pool {self.r}x{self.s} {self.c} @{self.h}x{self.w} b{self.n} {self.dtype}"
        )

    @property
    def flops(self) -> int:
        return self.n * self.p * self.q * self.c * self.r * self.s

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        x = (self.n, self.h, self.w, self.input.pitch or self.c)
        y = (self.n, self.p, self.q, self.output.pitch or self.c)
        return (
            Tensor(role="input", dtype=self.dtype, shape=x),
            Tensor(role="output", dtype=self.dtype, shape=y),
        )


KINDS: dict[str, type[Unit]] = {
    unit.kind: unit for unit in (Conv2d, Matmul, Attention, Softmax, Norm, Pool)
}


def to_json(unit: Unit) -> dict[str, Any]:
    """The unit as a JSON object; fields at their defaults are left out."""
    return {"kind": unit.kind, **_without_defaults(unit)}


def from_json(data: dict[str, Any]) -> Unit:
    """The unit of a JSON object; one that this version does not know is refused."""
    kind = KINDS.get(str(data.get("kind")))
    if kind is None:
        raise SchemaError(f"unknown unit '{data.get('kind')}': known are {', '.join(KINDS)}")
    unknown = set(data) - {f.name for f in dataclasses.fields(kind)} - {"kind"}
    if unknown:
        raise SchemaError(f"{kind.kind}: unknown fields {', '.join(sorted(unknown))}")
    return decode(kind, data)


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


def _contraction_tensors(
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


def _type_label(unit: Conv2d | Matmul | Attention) -> str:
    return unit.dtype if unit.math == "tensor" else unit.math


def _tail_label(epilogue: Epilogue) -> str:
    tail = ["bias"] if epilogue.bias else []
    tail += ["residual"] if epilogue.residual == "before" else []
    tail += [epilogue.activation] if epilogue.activation != "none" else []
    tail += ["residual"] if epilogue.residual == "after" else []
    return "".join(f" + {part}" for part in tail)
