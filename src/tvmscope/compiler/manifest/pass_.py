"""The manifest of a pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tvmscope.compiler.manifest.context import Context, always
from tvmscope.compiler.manifest.names import check_name, check_text
from tvmscope.compiler.manifest.rule import DEVICES
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.core.diagnosis.facts import PassFacts
from tvmscope.core.options import CompileOptions

if TYPE_CHECKING:
    import tvm

PHASES = (
    "graph",
    "precision",
    "tidy",
    "layout",
    "dispatch",
    "legalize",
    "fuse",
    "schedule",
    "lower",
    "memory",
    "finish",
)
"""The phases of the pipeline, in order."""
EVERYWHERE = DEVICES
NOWHERE: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Shows:
    """Which kernels show that a pass did not run."""

    kernels: str
    """A pattern of the kernels' names."""
    only_unscheduled: bool = False
    """Whether only kernels without a specific schedule rule show it, because the pass makes kernels
    for a specific rule."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pass:
    """A pass's manifest; its file ends with one. It is equal to itself only."""

    name: str
    phase: str
    """One of `PHASES`."""
    words: str
    """What the pass does to a model, in a sentence."""
    make: Callable[[Context], tvm.transform.Pass]
    ours: tuple[str, ...] = EVERYWHERE
    """The devices for which our pipeline runs the pass."""
    theirs: tuple[str, ...] = NOWHERE
    """The devices for which TVM's own pipeline runs the pass."""
    searched: tuple[str, ...] | None = None
    """The devices for which TVM's own pipeline for tuned models runs it; None: as `theirs`."""
    when: Callable[[CompileOptions], bool] = always
    """Whether the options require the pass."""
    required: bool = False
    """Whether the virtual machine cannot run the module without the pass."""
    switches: tuple[Switch, ...] = ()
    """How an ablation leaves the pass, or a part of it, out."""
    tracks: Literal["bindings", "fusion", "order", "calls"] = "bindings"
    """How the pass affects the names of source operators: it keeps them on the bindings; it
    fuses bindings into kernels, which then carry the names; it changes the kernels' order; or, if
    nothing was fused, the calls that it rewrites are the kernels."""
    shows: Shows | None = None
    """Which kernels show that the pass did not run; None if that is not known in advance."""
    finding: str = "pass-disabled"
    """The diagnosis rule that examines what remains without the pass."""
    before: str | None = None
    after: str | None = None
    """The pass beside which a pass from another package runs."""

    def __post_init__(self) -> None:
        what = f"pass '{self.name}'"
        check_name(self.name, "pass")
        check_text(self.words, what)
        if self.phase not in PHASES:
            raise ValueError(f"{what}: no phase '{self.phase}'; phases: {', '.join(PHASES)}")
        for devices in (self.ours, self.theirs, self.searched or ()):
            if not set(devices) <= set(DEVICES):
                raise ValueError(f"{what}: devices are of {', '.join(DEVICES)}, not {devices}")
        if self.required and self.switches:
            raise ValueError(f"{what}: what is required cannot be switched off")
        if self.before is not None and self.after is not None:
            raise ValueError(f"{what}: give one anchor, before or after")
        if self.shows is not None:
            re.compile(self.shows.kernels)

    def devices_of(self, pipeline: str) -> tuple[str, ...]:
        """Return the devices for which a pipeline of ours or TVM's runs it."""
        if pipeline == "tvm-tuned" and self.searched is not None:
            return self.searched
        return self.theirs if pipeline in ("tvm", "tvm-tuned") else self.ours

    def facts(self, brought_by: str | None = None) -> PassFacts:
        """Return what a session keeps about the pass if a row was compiled without it."""
        return PassFacts(
            name=self.name,
            words=self.words,
            kernels=None if self.shows is None else self.shows.kernels,
            only_unscheduled=self.shows is not None and self.shows.only_unscheduled,
            finding=self.finding,
            brought_by=brought_by,
        )
