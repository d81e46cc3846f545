"""Rewrites units to equivalent ones that suit the templates better."""

from __future__ import annotations

from dataclasses import replace

from tvmscope.cuda.units import Conv2d
from tvmscope.errors import UsageError
from tvmscope.messages import msg


def with_channels(unit: Conv2d, channels: int) -> Conv2d:
    """Add zero channels to a convolution's input: three channels cannot be loaded 8 or 16 bytes at
    a time. Input and weight must be padded accordingly."""
    if channels < unit.c or unit.groups != 1:
        raise UsageError(
            msg("{unit}: cannot have {channels} channels", unit=unit.label, channels=channels)
        )
    return replace(unit, c=channels)


def with_outputs(unit: Conv2d, outputs: int) -> Conv2d:
    """Add output channels of zeros, whose weights are zeros."""
    return replace(unit, oc=outputs)


def as_patches(unit: Conv2d) -> Conv2d | None:
    """Rewrite a convolution over patches that do not overlap, with a patch's row as channels: the
    same bytes of input ([n, h, w / s, s * c]) and of weight, but long contiguous taps. None if the
    windows overlap or the image's rows are no whole number of patches."""
    dense = unit.input.pitch in (None, unit.c) and unit.input.offset == 0
    fits = unit.stride[1] == unit.s and unit.w % unit.s == 0 and not any(unit.padding)
    if unit.s == 1 or unit.groups != 1 or unit.dilation[1] != 1 or not (dense and fits):
        return None
    return replace(unit, w=unit.w // unit.s, c=unit.c * unit.s, s=1, stride=(unit.stride[0], 1))
