"""The unit that normalises groups of channels over an image's pixels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tvmscope.cuda.units.base import Epilogue, Tensor, Unit, tail_label
from tvmscope.errors import UsageError
from tvmscope.messages import msg


@dataclass(frozen=True, kw_only=True)
class GroupNorm(Unit):
    """Group norm of [n, pixels, c], times a float32 weight per channel; then the epilogue, whose
    bias is the norm's own. With as many groups as channels it is an instance norm."""

    kind: ClassVar[str] = "group_norm"
    n: int
    pixels: int
    c: int
    groups: int
    epsilon: float = 1e-5
    epilogue: Epilogue = field(default_factory=Epilogue)

    def __post_init__(self) -> None:
        if self.groups < 1 or self.c % self.groups:
            raise UsageError(
                msg(
                    "group_norm: {c} channels are no {groups} equal groups",
                    c=self.c,
                    groups=self.groups,
                )
            )
        super().__post_init__()

    @property
    def width(self) -> int:
        """The channels of a group."""
        return self.c // self.groups

    @property
    def label(self) -> str:
        return (
            f"{self.kind} {self.c} g{self.groups} @{self.pixels} b{self.n} {self.dtype}"
            f"{tail_label(self.epilogue)}"
        )

    @property
    def flops(self) -> int:
        return 8 * self.n * self.pixels * self.c

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        shape, channels = (self.n, self.pixels, self.c), (self.c,)
        out = [
            Tensor(role="input", dtype=self.dtype, shape=shape),
            Tensor(role="scale", dtype="float32", shape=channels),
        ]
        if self.epilogue.bias:
            out.append(Tensor(role="bias", dtype="float32", shape=channels))
        if self.epilogue.residual != "none":
            out.append(Tensor(role="residual", dtype=self.dtype, shape=shape))
        out.append(Tensor(role="output", dtype=self.epilogue.output or self.dtype, shape=shape))
        return tuple(out)
