"""How long work tells what it is doing; the command line shows it, tests ignore it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Progress(Protocol):
    """Receives the current stage, how far it is, remarks worth a line, and where work is kept."""

    def stage(self, name: str, detail: str = "") -> None:
        """A new stage begins."""

    def step(self, done: float, total: float, detail: str = "") -> None:
        """The stage is `done` of `total`."""

    def note(self, text: str) -> None:
        """A remark for the user."""

    def saved(self, folder: Path) -> None:
        """A job has ended, by itself or not, and its session lies in this folder."""


class Silent:
    """Shows nothing."""

    def stage(self, name: str, detail: str = "") -> None: ...

    def step(self, done: float, total: float, detail: str = "") -> None: ...

    def note(self, text: str) -> None: ...

    def saved(self, folder: Path) -> None: ...
