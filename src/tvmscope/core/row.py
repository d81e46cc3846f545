"""The identity of a row: made once when the row is planned, and carried by everything about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self

from tvmscope.core.precision import FLOAT32, Precision

if TYPE_CHECKING:
    from tvmscope.core.target import Target

Family = Literal["ours", "tvm", "peer"]
"""Whose code a row runs: our pipeline's, that of TVM's default pipeline, another runtime's."""
Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way of running a model."""

    backend: str
    family: Family
    precision: Precision = FLOAT32
    pipeline: str | None = None
    """What compiled it: `tvmscope`, `tvm` or `file.py:function`; None for runtimes that need no
    artifact."""
    tuning: str | None = None
    """The tuning records that it is compiled with; None for an untuned row."""
    graph: bool = False
    fixed: bool = False
    """Whether it is what `analyze --fix` made of our row."""
    change: str | None = None
    """How an ablation compiled it, such as `without fusion`; None for the usual way."""

    @property
    def label(self) -> str:
        """What a table row is called; for people only."""
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
    """Which row of a session's table: a variant on a target."""

    variant: Variant
    target: str
    """The target's label."""
    device: Device

    @classmethod
    def of(cls, variant: Variant, target: Target) -> Self:
        """The key of a variant that is planned on a target."""
        return cls(variant=variant, target=target.label, device=target.device)

    @property
    def name(self) -> str:
        """The variant's label, where one target goes without saying."""
        return self.variant.label

    @property
    def label(self) -> str:
        """Variant and target."""
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
        """Rows are compared where target and precision are the same."""
        return self.target, self.precision

    @property
    def across_sessions(self) -> RowKey:
        """What the row is known by in another session, which may have other records or another
        pipeline: that is what the two are compared for."""
        return replace(self, variant=replace(self.variant, pipeline=None, tuning=None))

    @property
    def folder_name(self) -> str:
        """Where its artifact lies, inside a session's folder of artifacts."""
        return f"{self.name}-{self.target}".replace(" ", "-").replace(":", "-")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What exactly was measured. Two tasks may be compared when all but the variant match."""

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
        """Variant and target."""
        return self.key.label
