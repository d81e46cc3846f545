"""The manifest of a diagnosis rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tvmscope.core.diagnosis.findings import Finding
from tvmscope.core.session import Session
from tvmscope.messages import Text


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule's manifest; `check` is a pure function of a session."""

    id: str
    title: Text
    """What the rule looks for, in a few words."""
    needs: tuple[str, ...]
    """The parts of a session that the rule needs, such as `profiles` or `roofs`."""
    check: Callable[[Session], Iterator[Finding]]
