"""The pooling unit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from tvmscope.cuda.units.base import Tensor, Unit
from tvmscope.cuda.units.conv2d import View
from tvmscope.errors import UsageError
from tvmscope.messages import msg


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
    """Padding: top, left, bottom, right."""
    count_padding: bool = True
    """Whether padding counts as zeros in a mean."""
    round_up: bool = False
    """PyTorch's ceil_mode: a last window that begins inside the image or its padding counts."""
    input: View = field(default_factory=View)
    output: View = field(default_factory=View)

    def __post_init__(self) -> None:
        if self.p < 1 or self.q < 1:
            raise UsageError(
                msg(
                    "pool: a {r}x{s} window does not fit {h}x{w}",
                    r=self.r,
                    s=self.s,
                    h=self.h,
                    w=self.w,
                )
            )
        super().__post_init__()

    def _out(self, size: int, window: int, stride: int, before: int, after: int) -> int:
        room = size + before + after - window
        if not self.round_up:
            return room // stride + 1
        out = -(-room // stride) + 1
        # PyTorch: no window begins in the padding after the image
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
    def dense(self) -> Pool:
        return replace(self, input=View(), output=View())

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
