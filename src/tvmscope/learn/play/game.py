"""A game of schedules: moves with undo, each built, checked and timed; a leaderboard beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from tvmscope.errors import TvmscopeError
from tvmscope.learn.facts import Built
from tvmscope.learn.play.moves import Move
from tvmscope.messages import Text, msg, sentences

VALUES = 7
"""Runs whose median is a player's time; the lesson makes the final comparison."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """The schedule after some moves."""

    number: int
    """The number by which it is timed."""
    built: Built
    loops: tuple[str, ...]
    """The loops around the products, the outermost first."""


class Table(Protocol):
    """Builds and times schedules: a worker, or a `StepBuilder` in this process."""

    def build(self, moves: Sequence[Move]) -> Position: ...

    def time(self, number: int, values: int) -> list[float]: ...


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of the leaderboard."""

    name: Text
    seconds: float
    gflops: float | None


Rival = tuple[Text, Callable[[], Entry]]
"""An opponent: its name, shown if it cannot play, and a function that makes its entry."""


@dataclass
class Game:
    """The moves so far, and their results."""

    table: Table
    moves: list[Move] = field(default_factory=list)
    position: Position | None = None
    entries: list[Entry] = field(default_factory=list)
    said: Text = ""

    def start(self, rivals: Sequence[Rival]) -> None:
        """Build the plain loops and measure the opponents; list those that fail, with reasons."""
        self.position = self.table.build(())
        self.entries, missing = [], list[Text]()
        for name, measure in rivals:
            try:
                self.entries.append(measure())
            except TvmscopeError as e:
                missing.append(msg("{name} is missing: {reason}", name=name, reason=e.message))
        self.said = sentences(*missing)

    def make(self, move: Move) -> bool:
        """Add a move; a move that TIR refuses, or that makes a wrong result, changes nothing."""
        try:
            found = self.table.build([*self.moves, move])
        except TvmscopeError as e:
            self.said = e.message
            return False
        if not found.built.right:
            self.said = msg("{move} makes the result wrong", move=str(move))
            return False
        self.moves.append(move)
        self.position = found
        self.said = msg("{move}: right", move=str(move))
        return True

    def undo(self) -> bool:
        """Undo the last move."""
        if not self.moves:
            self.said = msg("there is no move to take back")
            return False
        last = self.moves.pop()
        self.position = self.table.build(self.moves)
        self.said = msg("{move} is taken back", move=str(last))
        return True

    def measure(self) -> Entry:
        """Time the current schedule and put it on the board; a faster one replaces a slower one."""
        assert self.position is not None
        seconds = median(self.table.time(self.position.number, VALUES))
        flops = self.position.built.flops
        name = msg("you, {count} moves", count=len(self.moves))
        entry = Entry(
            name=name, seconds=seconds, gflops=None if flops is None else flops / seconds * 1e-9
        )
        self.entries = [e for e in self.entries if e.name != name] + [entry]
        self.said = msg("measured; place {place} of {count}", place=self.place(entry),
                        count=len(self.entries))  # fmt: skip
        return entry

    def place(self, entry: Entry) -> int:
        """Return its rank on the board."""
        return 1 + sum(other.seconds < entry.seconds for other in self.entries)

    @property
    def board(self) -> list[Entry]:
        """The entries, the fastest first."""
        return sorted(self.entries, key=lambda entry: entry.seconds)
