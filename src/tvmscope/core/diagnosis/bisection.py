"""Types that describe where a compiled model first differs from its framework."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tvmscope.core.measurement import Accuracy
from tvmscope.messages import Text

Outcome = Literal["nothing", "reference", "importer", "pass", "schedule"]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The model after some passes, finished by TVM's required lowering alone."""

    name: Text
    """The last of the passes; for kernels, how many of them have their new form."""
    passed: bool | None
    """The error; None if it cannot be run."""
    detail: Text | None = None


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """The result of a bisection, and the folder that shows it in one run."""

    model: str
    target: str
    outcome: Outcome
    """`nothing` diverges; the `reference` itself verifies nothing; wrong from the `importer` on; a
    `pass`; or a `schedule` of one kernel."""
    accuracy: Accuracy
    """The error of the whole model."""
    passes: tuple[str, ...] = ()
    """The pass that is at fault; several where the module cannot be run between them."""
    kernel: str | None = None
    rule: str | None = None
    """The schedule rule that took the kernel."""
    source_ops: tuple[str, ...] = ()
    """The model's own operators that diverge first."""
    detail: Text | None = None
    """How the values differ at these operators."""
    reproducer: Path | None = None
    reproduced: bool | None = None
    """Whether running the reproducer showed the difference; None if there is nothing to run."""
    alone: bool = False
    """Whether the reproducer contains only that operator, or the whole model."""
    tested: tuple[Probe, ...] = ()
