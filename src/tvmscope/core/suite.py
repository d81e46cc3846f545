"""A row of a suite: the outcome of one problem, as one line of results.jsonl."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal, get_args

from tvmscope.messages import Text, marked
from tvmscope.storage import message_table
from tvmscope.storage.codec import decode, encode

Outcome = Literal[
    "correct", "noise", "wrong", "unsupported", "unloadable", "failed", "crashed", "timed out",
    "out of memory", "disk full",
]  # fmt: skip
"""`noise` means within the model's own rounding noise; `unloadable` fails before the compiler,
`unsupported` in the compiler's importer."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_SAID = (
    marked("correct"), marked("noise"), marked("wrong"), marked("unsupported"),
    marked("unloadable"), marked("failed"), marked("crashed"), marked("timed out"),
    marked("out of memory"), marked("disk full"),
)  # fmt: skip
"""For translators: `messages.word` shows these words."""
RIGHT: tuple[Outcome, ...] = ("correct", "noise")
"""Outcomes whose times are used."""


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """Our time compared with another backend's, both measured in turns; over 1: we are faster."""

    value: float
    low: float | None = None
    high: float | None = None
    """The upper limit of the 95 % interval; None if there were too few rounds."""


@dataclass(frozen=True, kw_only=True)
class SuiteRow:
    """One problem on one machine."""

    problem: str
    """The problem's path below the suite's folder, or its name."""
    key: str
    """A digest of file, options, versions and machine: another key means another row."""
    outcome: Outcome
    reason: Text | None = None
    host: str
    cpu: str
    medians_s: dict[str, float] = field(default_factory=dict)
    """Median times by backend; only rows whose results are correct."""
    speedups: dict[str, Speedup] = field(default_factory=dict)
    """Ours against each other backend."""
    others: dict[str, Text] = field(default_factory=dict)
    """Backends without a time, and why."""
    error: float | None = None
    """max|a-b| / max|reference| of our row."""
    noise: float | None = None
    """The model's own rounding noise on the same scale, if the verdict needed it."""
    fallbacks: tuple[str, ...] = ()
    """Operators that ran in their framework."""
    operators: int | None = None
    """All operators of the model."""
    finding: Text | None = None
    """The title of the first finding about our row."""
    warnings: tuple[Text, ...] = ()
    """Warnings about our row, such as other processes that ran at the same time."""
    took_s: float
    finished: str
    session: str | None = None
    """The session's folder, relative to the suite's."""

    @property
    def is_right(self) -> bool:
        """Whether its times are used."""
        return self.outcome in RIGHT

    @property
    def fallback_share(self) -> float | None:
        """The share of operators that ran in their framework."""
        return len(self.fallbacks) / self.operators if self.operators else None

    @property
    def slowest_ratio(self) -> float | None:
        """The speed-up against the backend that is furthest ahead of us."""
        return min((s.value for s in self.speedups.values()), default=None)


def to_line(row: SuiteRow) -> str:
    """The row as one line of JSON, with what its texts are made of."""
    data = encode(row)
    if messages := message_table.table(data):
        data[message_table.KEY] = messages
    return json.dumps(data, allow_nan=False)


def from_line(line: str | bytes) -> SuiteRow:
    """The row that a line holds; a SchemaError or a ValueError says what is wrong with it."""
    data = json.loads(line)
    known = message_table.read(data.get(message_table.KEY)) if isinstance(data, dict) else {}
    return decode(SuiteRow, data, known)
