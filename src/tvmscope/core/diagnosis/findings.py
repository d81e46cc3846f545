"""Findings, and the outcomes of their fixes: the prediction, the measured saving, the decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tvmscope.core.row import RowKey
from tvmscope.messages import Text, marked

CLOSE = 0.35
"""A prediction is correct if it is off by at most this share of the achieved saving."""

Outcome = Literal["open", "kept", "reverted"]
_SAID = (
    marked("open"), marked("kept"), marked("reverted"),
    marked("high"), marked("medium"), marked("low"), marked("info"),
    marked("minutes"), marked("hours"), marked("retune"), marked("none"),
)  # fmt: skip
"""Outcomes, severities and efforts, for translators: `messages.word` shows them."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A diagnosed cause with its evidence, its worth and, if there is one, its fix."""

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
    """The estimated saving, made before any fix was built."""
    fix: dict[str, Any] = field(default_factory=dict)
    """Overrides of compile options; empty if there is no fix to apply."""
    achieved_s: float | None = None
    """The measured saving of the fix once it was built; negative if it made the model slower."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A finding's fix, saved with its prediction before it is built, completed afterwards."""

    rule: str
    title: Text
    """The finding's title."""
    key: RowKey | None = None
    """The row on which it was tried; None in older lines of the calibration file, without keys."""
    fix: dict[str, Any] = field(default_factory=dict)
    predicted_s: float | None = None
    achieved_s: float | None = None
    """The saved time, measured in turns with the unfixed row; None if it could not be measured."""
    ci95_s: tuple[float, float] | None = None
    outcome: Outcome = "open"
    """`open` from the prediction to the verdict; it stays `open` if the work was interrupted."""
    reason: Text = ""
    """Why the fix was kept, or not."""

    @property
    def close(self) -> bool | None:
        """Whether the prediction was correct; None if there is nothing to compare."""
        if self.predicted_s is None or self.achieved_s is None:
            return None
        return abs(self.predicted_s - self.achieved_s) <= CLOSE * abs(self.achieved_s)


def hits(attempts: Sequence[Attempt]) -> tuple[int, int]:
    """Return how many predictions were correct, and how many could be checked."""
    checked = [a.close for a in attempts if a.close is not None]
    return sum(checked), len(checked)
