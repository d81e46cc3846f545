"""What two artifacts say about one picture, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from tvmscope.core.vision import Box, Label


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """How far two answers may lie apart and still count as one."""

    least_iou: float = 0.99
    most_score: float = 0.005


LIKENESS = Likeness()
HALF_LIKENESS = Likeness(least_iou=0.9, most_score=0.05)
"""For half precision, whose scores have three digits."""


@dataclass(frozen=True, kw_only=True)
class BoxPair:
    """A box of each side that lie on each other, or one that the other side lacks."""

    before: Box | None
    after: Box | None
    iou: float | None = None
    same: bool = False
    """Within the likeness; a lone box is, where its score is that close to the threshold."""

    @property
    def score_change(self) -> float | None:
        """After less before; None for a lone box."""
        if self.before is None or self.after is None:
            return None
        return self.after.score - self.before.score


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """One picture, seen by both."""

    picture: str
    boxes: tuple[BoxPair, ...] = ()
    labels_before: tuple[Label, ...] = ()
    labels_after: tuple[Label, ...] = ()
    same: bool = True
    failure: str | None = None
    """Why the picture could not be asked about."""
