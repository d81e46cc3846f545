"""How close a backend's outputs are to the reference framework's."""

from __future__ import annotations

from dataclasses import dataclass

ITSELF = "its own first run"
"""A reference that proves nothing but that the same comes out again."""


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Worst case over all outputs; `error` is max|a-b| / max|ref|."""

    reference: str
    passed: bool
    max_abs: float | None
    error: float | None
    cosine: float | None
    tolerance: float
    detail: str | None = None
    """Why it failed: the output's name and what differs; None when passed."""
