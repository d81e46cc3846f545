"""Where a GPU's launches that only move data lie: at the program's inputs, outputs or in between.

The requested formats may need one launch that converts each input and one that copies each output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvmscope.core.profile import KernelTime


@dataclass(frozen=True, kw_only=True)
class Moves:
    """Launches of a run that only move data, counted by their place."""

    inputs: int
    """Those that read an input."""
    outputs: int
    """Those that write an output, and read no input."""
    between: int
    spare: tuple[int, ...]
    """Of each kernel, the launches that are not an input's or output's first one."""


def located(kernels: Sequence[KernelTime]) -> Moves | None:
    """Return where kernels that only move data lie; None if that is not known of all of them."""
    inputs = outputs = between = 0
    converted, copied = set[int](), set[int]()
    spare = []
    for kernel in kernels:
        if kernel.edges is None:
            return None
        read, written = set(kernel.edges.inputs), set(kernel.edges.outputs)
        needed = len(read - converted) or len(written - copied)
        converted |= read
        copied |= written
        inputs += kernel.calls if read else 0
        outputs += kernel.calls if written and not read else 0
        between += 0 if read or written else kernel.calls
        spare.append(max(0, kernel.calls - needed))
    return Moves(inputs=inputs, outputs=outputs, between=between, spare=tuple(spare))
