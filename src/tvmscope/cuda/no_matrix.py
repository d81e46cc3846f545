"""Says why a generated kernel has no matrix instruction, where its template tells."""

from __future__ import annotations

from tvmscope.cuda.config import MATRIX
from tvmscope.messages import marked

_REASONS: dict[str, str] = {
    "matvec": marked("one row, no matrix to multiply"),
    "depthwise": marked("each channel is convolved on its own"),
    **dict.fromkeys(MATRIX, marked("float32 products, not rounded")),
}
"""Kernels that multiply; the others have no products."""


def reason(template: str) -> str | None:
    """Return the reason for a kernel of this template; None if it multiplies nothing."""
    return _REASONS.get(template)
