"""The manifest of a schedule rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.names import check_name, check_text
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.core.diagnosis.facts import RuleFacts
from tvmscope.core.target import Target

if TYPE_CHECKING:
    from tvm import s_tir, tirx

DEVICES = ("cpu", "cuda")
Space = dict[str, tuple[int | str, ...]]
"""The values that a rule's parameters may have, by name; the rule's own default comes first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScheduleRule:
    """A schedule rule's manifest; its file ends with one. It is equal to itself only."""

    name: str
    devices: tuple[str, ...]
    """The devices whose kernels the rule is offered: `cpu`, `cuda`."""
    schedule: Callable[[tirx.PrimFunc, Target], s_tir.Schedule | None]
    """Returns the kernel's schedule; None if the kernel is for another rule."""
    words: str
    """What the rule does to a kernel, in a sentence."""
    version: int
    """Raise it with every change of the rule's defaults. A tuning record names only what differs
    from that, so that records of another version mean something else."""
    space: Callable[[tirx.PrimFunc, Target], Space | None] | None = None
    """Returns what tuning may choose for a kernel; None if the kernel is for another rule."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The meaning of a parameter's value, by `name`, or by `name=value` for a single value;
    `{value}` is replaced by it."""
    switch: Switch | None = None
    """How an ablation leaves the rule out; None if nothing would run then."""
    shared_switch: Switch | None = None
    """Beside it, how an ablation leaves out all rules that name this switch together."""
    last_resort: bool = False
    """Whether the rule takes kernels that no other rule handles."""
    before: str | None = None
    after: str | None = None
    """The rule beside which one from another package is offered kernels."""

    def __post_init__(self) -> None:
        what = f"schedule rule '{self.name}'"
        check_name(self.name, "schedule rule")
        check_text(self.words, what)
        if not self.devices or not set(self.devices) <= set(DEVICES):
            raise ValueError(f"{what}: devices are of {', '.join(DEVICES)}, not {self.devices}")
        if self.version < 1:
            raise ValueError(f"{what}: versions begin with 1, not {self.version}")
        if self.space is not None and not self.parameters:
            raise ValueError(f"{what}: it has a space, and no words for its parameters")
        if self.before is not None and self.after is not None:
            raise ValueError(f"{what}: give one anchor, before or after")

    def facts(self, brought_by: str | None = None) -> RuleFacts:
        """Return what a session keeps about the rule."""
        return RuleFacts(
            name=self.name,
            words=self.words,
            version=self.version,
            parameters=dict(self.parameters),
            brought_by=brought_by,
        )
