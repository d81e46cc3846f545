"""Programmatic dependent launch: wait for the previous kernel, let the next one start.

Such a kernel may start while its predecessor still runs. Before `wait` it may read only data that
no kernel of the program writes (weights), and after the predecessor's `release` its blocks use the
multiprocessors that become free. A late release (after the main loop) measured best.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def wait(PDL: tl.constexpr):
    """Wait until everything before this kernel is complete and visible."""
    if PDL > 0:
        gdc_wait()


@triton.jit
def release(PDL: tl.constexpr):
    """Allow the next kernel to begin once all blocks have come here."""
    if PDL > 0:
        gdc_launch_dependents()


@triton.jit
def prefetch(pointers):
    """Ask for the cache lines of `pointers` to be brought into the L2 cache."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [pointers.to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def hold(values, EARLY: tl.constexpr):
    """Return the same values, after an instruction that the compiler does not move (EARLY 2).

    A value that is loaded early and used late would otherwise be converted to the layout of its use
    directly after its load: everything in between would wait for it.
    """
    if EARLY < 2:
        return values
    if values.dtype.primitive_bitwidth == 16:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [values], dtype=values.dtype, is_pure=False, pack=2
        )
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [values], dtype=values.dtype, is_pure=False, pack=1
    )
