"""Where the time goes: kernels, their loop nests and the machine's roofs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """One kernel's total in a profile; None where unknown, never 0."""

    name: str
    source_ops: tuple[str, ...]
    calls: int
    total_s: float
    flops: float | None = None
    bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Kernel times of one backend, from a run of its own."""

    backend: str
    kernels: tuple[KernelTime, ...]

    @property
    def total_s(self) -> float:
        """The sum over all kernels."""
        return sum(k.total_s for k in self.kernels)


@dataclass(frozen=True, kw_only=True)
class KernelIR:
    """A kernel's loop tree and schedule, readable without TVM."""

    name: str
    tree: tuple[dict[str, Any], ...]
    buffers: tuple[dict[str, Any], ...] = ()
    trace: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Roof:
    """A measured limit of the machine."""

    dtype: str
    threads: int
    flops_per_s: float | None
    bytes_per_s: float | None
    how: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A diagnosed cause with its evidence, its worth and, where there is one, its fix."""

    rule: str
    severity: str
    effort: str
    title: str
    evidence: str
    advice: str
    saving_s: float | None = None
    fix: dict[str, Any] = field(default_factory=dict)
    achieved_s: float | None = None
