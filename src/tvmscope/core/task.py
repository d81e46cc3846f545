"""The identity of a measurement: model x target x variant x shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Precision = Literal["float32", "float16", "bfloat16"]


SHORT = {"float16": "fp16", "bfloat16": "bf16"}
"""How labels write a precision; float32 goes without saying."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way of running a model."""

    backend: str
    precision: str = "float32"
    pipeline: str | None = None
    tuning: str | None = None
    graph: bool = False
    fixed: bool = False
    """Whether it is what `analyze --fix` made of our row."""
    change: str | None = None
    """How an ablation compiled it, such as `without fusion`; None for the usual way."""

    @property
    def label(self) -> str:
        """What a table row is called."""
        parts = [self.backend]
        if self.precision != "float32":
            parts.append(SHORT.get(self.precision, self.precision))
        if self.graph:
            parts.append("graph")
        if self.fixed:
            parts.append("fixed")
        if self.change is not None:
            parts.append(self.change)
        return " ".join(parts)


@dataclass(frozen=True, kw_only=True)
class Task:
    """What exactly was measured. Two tasks may be compared when all but the variant match."""

    model: str
    digest: str
    target: str
    threads: int
    variant: Variant
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Variant and target."""
        return f"{self.variant.label} @ {self.target}"
