"""Findings, and what became of their fixes: what was promised, what it brought, what stayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tvmscope.core.row import RowKey
from tvmscope.messages import Text, marked

CLOSE = 0.35
"""A prediction is right when it is off by at most this share of what was achieved."""

Outcome = Literal["open", "kept", "reverted"]
_SAID = (
    marked("open"), marked("kept"), marked("reverted"),
    marked("high"), marked("medium"), marked("low"), marked("info"),
    marked("minutes"), marked("hours"), marked("retune"), marked("none"),
)  # fmt: skip
"""Outcomes, severities and efforts, for translators: `messages.word` says them."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A diagnosed cause with its evidence, its worth and, where there is one, its fix."""

    rule: str
    severity: str
    """`high`, `medium`, `low` or `info`."""
    effort: str
    """`minutes`, `hours`, `retune` or `none`."""
    title: Text
    evidence: Text
    advice: Text
    kernels: tuple[str, ...] = ()
    source_ops: tuple[str, ...] = ()
    saving_s: float | None = None
    """The estimate, made before any fix was built."""
    fix: dict[str, Any] = field(default_factory=dict)
    """Overrides of compile options; empty where there is no fix to apply."""
    achieved_s: float | None = None
    """What the fix brought when it was built and measured; negative where it made things slower."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A finding's fix, saved with its prediction before it is built, completed afterwards."""

    rule: str
    title: Text
    """Of the finding."""
    key: RowKey | None = None
    """The row that it was tried on; None in a line of the calibration file from before keys."""
    fix: dict[str, Any] = field(default_factory=dict)
    predicted_s: float | None = None
    achieved_s: float | None = None
    """The time saved in turns with the row as it was; None where that could not be measured."""
    ci95_s: tuple[float, float] | None = None
    outcome: Outcome = "open"
    """`open` from the prediction to the verdict, and for ever where the work was cut off."""
    reason: Text = ""
    """Why it stayed, or went."""

    @property
    def close(self) -> bool | None:
        """Whether the prediction came true; None where there is nothing to compare."""
        if self.predicted_s is None or self.achieved_s is None:
            return None
        return abs(self.predicted_s - self.achieved_s) <= CLOSE * abs(self.achieved_s)


def hits(attempts: Sequence[Attempt]) -> tuple[int, int]:
    """How many predictions came true, of how many that could be checked."""
    checked = [a.close for a in attempts if a.close is not None]
    return sum(checked), len(checked)
