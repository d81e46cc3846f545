"""The attention unit, and the layout of heads inside rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tvmscope.cuda.units.base import Math, Tensor, Unit, check_math, type_label
from tvmscope.errors import UsageError
from tvmscope.messages import msg


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Rows of heads inside a buffer: elements between batches, heads and rows; a head's values are
    contiguous."""

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
    """None means dense [batch, rows, heads, dim], as projections write them."""
    mask: tuple[int, int, int] | None = None
    """Strides (batch, head, query) of an additive mask over the keys; 0 repeats it."""
    shared: int = 1
    """So many consecutive heads have one key and one value."""
    mask_batches: int | None = None
    """The mask has so many batches, which repeat; None means all."""
    math: Math = "tensor"

    def __post_init__(self) -> None:
        check_math(self.kind, self.dtype, self.math)
        if self.heads % self.shared:
            raise UsageError(
                msg(
                    "attention: {heads} heads are no groups of {shared}",
                    heads=self.heads,
                    shared=self.shared,
                )
            )
        if self.batch * self.heads > 65535:
            raise UsageError(
                msg(
                    "attention: {batch} x {heads} heads exceed the grid's axis",
                    batch=self.batch,
                    heads=self.heads,
                )
            )
        super().__post_init__()

    @property
    def dim_v(self) -> int:
        return self.value_dim or self.dim

    def heads_of(self, name: Literal["q", "k", "v", "y"]) -> Heads:
        """Return the layout of a tensor; dense if the unit does not set it."""
        given: Heads | None = getattr(self, name)
        if given is not None:
            return given
        dim = self.dim if name in "qk" else self.dim_v
        rows = self.queries if name in "qy" else self.keys
        heads = self.heads_in(name)
        return Heads(batch=rows * heads * dim, head=dim, row=heads * dim)

    def heads_in(self, name: Literal["q", "k", "v", "y"]) -> int:
        """Return the number of heads that a tensor has."""
        return self.heads // self.shared if name in "kv" else self.heads

    @property
    def label(self) -> str:
        own = f"{self.heads}" if self.shared == 1 else f"{self.heads}/{self.heads_in('k')}"
        extra = " causal" * self.causal + " masked" * (self.mask is not None)
        return (
            f"attention {self.batch}x{own} {self.queries}x{self.keys}x{self.dim}"
            f" {type_label(self.dtype, self.math)}{extra}"
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
                at.offset + (self.batch - 1) * at.batch
                + (self.heads_in(name) - 1) * at.head + (rows - 1) * at.row + dim,
            )  # fmt: skip

        out = [
            Tensor(role="query", dtype=self.dtype, shape=extent("q", self.queries, self.dim)),
            Tensor(role="key", dtype=self.dtype, shape=extent("k", self.keys, self.dim)),
            Tensor(role="value", dtype=self.dtype, shape=extent("v", self.keys, self.dim_v)),
        ]
        if self.mask is not None:
            batch, head, query = self.mask
            batches = self.mask_batches or self.batch
            size = (batches - 1) * batch + (self.heads - 1) * head + (self.queries - 1) * query
            out.append(Tensor(role="mask", dtype=self.dtype, shape=(size + self.keys,)))
        y = extent("y", self.queries, self.dim_v)
        return (*out, Tensor(role="output", dtype=self.dtype, shape=y))
