"""The identity of a row: made once when the row is planned, and part of everything about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self

from tvmscope.core.precision import FLOAT32, Precision

if TYPE_CHECKING:
    from tvmscope.core.target import Target

Family = Literal["ours", "tvm", "peer"]
"""Whose code a row runs: our pipeline's, that of TVM's default pipeline, or another runtime's."""
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to run a model."""

    backend: str
    family: Family
    precision: Precision = FLOAT32
    pipeline: str | None = None
    """The pipeline that compiled it: `tvmscope`, `tvm` or `file.py:function`; None for runtimes
    without an artifact."""
    tuning: str | None = None
    """The tuning records with which it is compiled; None for an untuned row."""
    graph: bool = False
    fixed: bool = False
    """Whether `analyze --fix` made it from our row."""
    change: str | None = None
    """How an ablation compiled it, such as `without fusion`; None for the usual build."""

    @property
    def label(self) -> str:
        """The row's name in tables; for people only."""
        parts = [self.backend, self.precision.label]
        parts += ["graph"] if self.graph else []
        parts += ["fixed"] if self.fixed else []
        return " ".join(part for part in (*parts, self.change or "") if part)

    @property
    def is_ours(self) -> bool:
        """Whether it is one of the rows that others are compared with."""
        return self.family == "ours"

    @property
    def is_compiled(self) -> bool:
        """Whether this program compiles it, with our pipeline or TVM's: such rows are diagnosed
        and fixed."""
        return self.family in ("ours", "tvm")

    @property
    def uses_our_passes(self) -> bool:
        """Whether our own pipeline made it, and not TVM's or the user's."""
        return self.pipeline == "tvmscope" or (self.pipeline is None and self.is_ours)


@dataclass(frozen=True, kw_only=True)
class RowKey:
    """The identity of a row in a session's table: a variant on a target."""

    variant: Variant
    target: str
    """The target's label."""
    device: Device

    @classmethod
    def of(cls, variant: Variant, target: Target) -> Self:
        """Return the key of a variant that is planned on a target."""
        return cls(variant=variant, target=target.label, device=target.device)

    @property
    def name(self) -> str:
        """The variant's label, for tables with a single target."""
        return self.variant.label

    @property
    def label(self) -> str:
        """The label of variant and target."""
        return f"{self.name} @ {self.target}"

    @property
    def precision(self) -> Precision:
        return self.variant.precision

    @property
    def is_ours(self) -> bool:
        """See `Variant.is_ours`."""
        return self.variant.is_ours

    @property
    def is_compiled(self) -> bool:
        """See `Variant.is_compiled`."""
        return self.variant.is_compiled

    @property
    def group(self) -> tuple[str, Precision]:
        """Target and precision: rows are compared if both are equal."""
        return self.target, self.precision

    @property
    def across_sessions(self) -> RowKey:
        """The key by which the row is found in another session, which may have other records or
        another pipeline: the comparison is about these."""
        return replace(self, variant=replace(self.variant, pipeline=None, tuning=None))

    @property
    def folder_name(self) -> str:
        """The name of its artifact's folder, inside a session's folder of artifacts."""
        return f"{self.name}-{self.target}".replace(" ", "-").replace(":", "-")


@dataclass(frozen=True, kw_only=True)
class Task:
    """All that defines a measurement. Two tasks may be compared if all but the variant match."""

    model: str
    digest: str
    key: RowKey
    threads: int
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def variant(self) -> Variant:
        return self.key.variant

    @property
    def target(self) -> str:
        """The target's label."""
        return self.key.target

    @property
    def label(self) -> str:
        """The label of variant and target."""
        return self.key.label
