"""The convolution unit, and views of channels inside wider tensors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar, Literal

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
class View:
    """Channels inside a wider NHWC tensor: `pitch` elements between pixels (None: the view's own
    channels), of which the view begins at `offset`."""

    pitch: int | None = None
    offset: int = 0


MOST_POOLED = 256
"""The most pixels of a pooled window: a tile holds whole windows."""


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """A pool behind a convolution: windows of `r` x `s` output pixels, side by side from the first
    pixel on; pixels that fill no window are not computed."""

    form: Literal["max", "mean"]
    r: int
    s: int

    @property
    def rows(self) -> int:
        """The rows of a tile that a window takes: a power of two, some of them empty."""
        return 1 << (self.r * self.s - 1).bit_length()


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
    """Padding: top, left, bottom, right."""
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    math: Math = "tensor"
    epilogue: Epilogue = field(default_factory=Epilogue)
    gated: bool = False
    """The input is multiplied by a factor for each image and channel first: the tensor `gate`."""
    pooled: Pooled | None = None
    """What only the pool of the result leaves, after the epilogue."""
    input: View = field(default_factory=View)
    residual: View = field(default_factory=View)
    output: View = field(default_factory=View)

    def __post_init__(self) -> None:
        check_math(self.kind, self.dtype, self.math)
        if self.c % self.groups or self.oc % self.groups:
            raise UsageError(
                msg(
                    "conv2d: {c} -> {oc} channels are no {groups} equal groups",
                    c=self.c,
                    oc=self.oc,
                    groups=self.groups,
                )
            )
        if self.p < 1 or self.q < 1:
            raise UsageError(
                msg(
                    "conv2d: a {r}x{s} window does not fit {h}x{w}",
                    r=self.r,
                    s=self.s,
                    h=self.h,
                    w=self.w,
                )
            )
        self._check_pooled()
        if self.gated and not (self._is_pointwise and self.pooled is None):
            raise UsageError(msg("conv2d: a factor per channel is for 1x1 convolutions alone"))
        for name, view, channels in (
            ("input", self.input, self.c),
            ("residual", self.residual, self.oc),
            ("output", self.output, self.oc),
        ):
            if view.offset < 0 or view.offset + channels > (view.pitch or channels):
                raise UsageError(
                    msg(
                        "conv2d: {name} view {view} does not hold {channels} channels",
                        name=name,
                        view=str(view),
                        channels=channels,
                    )
                )
        super().__post_init__()

    def _check_pooled(self) -> None:
        if self.pooled is None:
            return
        r, s = self.pooled.r, self.pooled.s
        if not (1 <= r <= self.p and 1 <= s <= self.q and 1 < r * s <= MOST_POOLED):
            raise UsageError(
                msg(
                    "conv2d: no kernel pools windows of {r}x{s} of {p}x{q} pixels",
                    r=r,
                    s=s,
                    p=self.p,
                    q=self.q,
                )
            )

    @property
    def p(self) -> int:
        """The height of the convolution's result."""
        top, _, bottom, _ = self.padding
        return (self.h + top + bottom - self.dilation[0] * (self.r - 1) - 1) // self.stride[0] + 1

    @property
    def q(self) -> int:
        """The width of the convolution's result."""
        _, left, _, right = self.padding
        return (self.w + left + right - self.dilation[1] * (self.s - 1) - 1) // self.stride[1] + 1

    @property
    def depthwise(self) -> bool:
        """Whether each output channel sees one input channel."""
        return self.groups == self.c

    @property
    def _is_pointwise(self) -> bool:
        window = (self.r, self.s, *self.stride, self.groups)
        return window == (1, 1, 1, 1, 1) and not any(self.padding)

    @property
    def stored(self) -> tuple[int, int, int]:
        """Images, height and width of the output: behind the pool, if there is one."""
        if self.pooled is None:
            return self.n, self.p, self.q
        return self.n, self.p // self.pooled.r, self.q // self.pooled.s

    @property
    def m(self) -> int:
        """The rows of the implicit product: output pixels, and the empty rows of windows."""
        return prod(self.stored) * (1 if self.pooled is None else self.pooled.rows)

    @property
    def k(self) -> int:
        """The number of values under the window of one group."""
        return self.r * self.s * self.c // self.groups

    @property
    def padded(self) -> bool:
        """Whether a window can reach outside the image."""
        bottom = (self.p - 1) * self.stride[0] + (self.r - 1) * self.dilation[0] - self.padding[0]
        right = (self.q - 1) * self.stride[1] + (self.s - 1) * self.dilation[1] - self.padding[1]
        return any(self.padding[:2]) or bottom >= self.h or right >= self.w

    @property
    def dense(self) -> Conv2d:
        return replace(self, input=View(), residual=View(), output=View())

    @property
    def label(self) -> str:
        groups = "" if self.groups == 1 else f" g{self.groups}"
        down, across = self.stride
        stride = f"/{down}" if down == across else f"/{down}x{across}"
        stride = "" if self.stride == (1, 1) else stride
        return (
            f"{self.r}x{self.s} {self.c}->{self.oc}{groups} @{self.h}x{self.w}{stride}"
            f" b{self.n} {type_label(self.dtype, self.math)}{' gated' * self.gated}"
            f"{tail_label(self.epilogue)}"
            f"{self._pool_label}"
        )

    @property
    def _pool_label(self) -> str:
        pool = self.pooled
        return "" if pool is None else f" + {pool.form} pool {pool.r}x{pool.s}"

    @property
    def flops(self) -> int:
        return 2 * self.n * self.p * self.q * self.oc * self.k

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        plain = contraction_tensors(
            self.dtype,
            self.epilogue,
            x=(self.n, self.h, self.w, self.input.pitch or self.c),
            w=(self.oc, self.r, self.s, self.c // self.groups),
            bias=(self.oc,),
            residual=(self.n, self.p, self.q, self.residual.pitch or self.oc),
            y=(*self.stored, self.output.pitch or self.oc),
        )
        gate = Tensor(role="gate", dtype=self.dtype, shape=(self.n, self.c))
        return (plain[0], gate, *plain[1:]) if self.gated else plain
