"""Dimensions that vary: a user's request, and the content of an artifact of several sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tvmscope.errors import UsageError
from tvmscope.messages import msg

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class DynamicRange:
    """Input dimensions that vary together, from `low` to `high`."""

    places: tuple[tuple[str, int], ...]
    """Inputs with the dimension of each."""
    low: int
    high: int
    named: tuple[int, ...] = ()
    """Sizes that get their own kernels; empty: powers of two and both ends."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes that get their own kernels."""
        if self.named:
            return tuple(sorted({*self.named, self.high}))
        powers = {1 << n for n in range(31) if self.low <= 1 << n <= self.high}
        return tuple(sorted({self.low, self.high, *powers}))

    def joined(self, shapes: Mapping[str, Shape]) -> DynamicRange:
        """Add the same dimension of all other inputs that have the same size there."""
        name, axis = self.places[0]
        size = shapes[name][axis]
        more = [
            (other, axis)
            for other, shape in shapes.items()
            if len(shape) > axis and shape[axis] == size and other not in dict(self.places)
        ]
        return DynamicRange(
            places=(*self.places, *more), low=self.low, high=self.high, named=self.named
        )

    def at(self, shapes: Mapping[str, Shape], size: int) -> dict[str, Shape]:
        """Return all input shapes with this size in the dimensions that vary."""
        found = dict(shapes)
        for name, axis in self.places:
            found[name] = (*found[name][:axis], size, *found[name][axis + 1 :])
        return found


@dataclass(frozen=True, kw_only=True)
class SizeCost:
    """What one size costs: a call of the artifact beside a call of its kernels for the size."""

    size: int
    seconds: float
    """The median time of a call."""
    static_s: float
    """The median time of the kernels called directly: of this size, or of the next with kernels."""
    ratio: float | None = None
    """The first over the second, paired by round; None in artifacts of older versions."""
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """The content of an artifact's `dynamic.json`."""

    range: DynamicRange
    base: int
    """The size of the artifact in the folder itself; the others are in `sizes/`."""
    output_axes: dict[str, int | None] = field(default_factory=dict)
    """The axis of each output that varies with the size; None if none does."""
    rest: Literal["split", "pad", "none"] = "none"
    """How sizes without their own kernels run: split into parts, padded to the next, or refused."""
    weights_share: float = 1.0
    """The bytes of all weights, relative to those of the size with the most."""
    costs: tuple[SizeCost, ...] = ()


def parse_dynamic(text: str) -> DynamicRange:
    """Parse `x:0=1..32`, `ids:1,mask:1=8..256`, or, with the sizes of kernels, `x:0=1..32@8,32`."""
    match = re.fullmatch(r"([^=]+)=(\d+)\.\.(\d+)(?:@(\d+(?:,\d+)*))?", text.strip())
    pairs = [part.strip().rpartition(":") for part in match[1].split(",")] if match else []
    if match is None or not all(name and axis.isdigit() for name, _, axis in pairs):
        raise UsageError(
            msg(
                "'{text}' is no dynamic dimension; write name:0=1..32 or name:0=1..32@8,32",
                text=text,
            )
        )
    low, high = int(match[2]), int(match[3])
    named = tuple(int(size) for size in match[4].split(",")) if match[4] else ()
    if not 0 < low < high or not all(low <= size <= high for size in named):
        raise UsageError(
            msg("'{text}': sizes go up from at least 1, and named ones lie between", text=text)
        )
    places = tuple((name, int(axis)) for name, _, axis in pairs)
    return DynamicRange(places=places, low=low, high=high, named=named)
