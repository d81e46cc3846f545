"""Reads from the symbol of a library's kernel which instructions multiply in it.

NVIDIA's libraries name most of their kernels by architecture, types and tile, and many by the
instruction. Where the symbol does not tell, nothing is said.
"""

from __future__ import annotations

import re

ORDINARY = "fma"
"""The kernel multiplies on the ordinary cores."""

_KINDS = (
    ("tcgen05", re.compile(r"tcgen05|utc\w*mma|^nvjet_sm1\d\d")),
    ("wgmma", re.compile(r"gmma|sm90_\w*(warpgroup|tensorop_[a-z]*64x)|^nvjet_(?!sm)")),
    (ORDINARY, re.compile(r"_ffma_|_simt_|(?<![a-z])sgemm|scudnn|convolve_sgemm|hfma2")),
    (
        "mma",
        re.compile(r"[hi]mma|wmma|tensorop|_tensor\d+x\d+x\d+|_[hsi]\d{3,5}(gemm|cudnn|fprop)"),
    ),
)
"""The first kind that fits counts; a name with `wgmma` has `mma` too."""
_SHAPES = (
    re.compile(r"_tensor(\d+)x(\d+)x(\d+)"),
    re.compile(r"_[hsi](64)x(\d+)x(\d+)gemm"),
    re.compile(r"_[hsi](16|8)(8|16)(16|32|8|4)(?:gemm|cudnn|fprop)"),
)


def instruction(symbol: str) -> str | None:
    """Return `wgmma m64n128k16`, `mma`, `fma` ..., or None if the symbol does not tell."""
    name = symbol.lower()
    kind = next((kind for kind, pattern in _KINDS if pattern.search(name)), None)
    if kind in (None, ORDINARY):
        return kind
    shape = next((found for pattern in _SHAPES if (found := pattern.search(name))), None)
    return f"{kind} m{shape[1]}n{shape[2]}k{shape[3]}" if shape else kind
