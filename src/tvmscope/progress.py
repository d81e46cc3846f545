"""The interface for progress reports; the command line shows them, tests ignore them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tvmscope.messages import Text


class Progress(Protocol):
    """Receives the current stage, its progress, remarks, and the folder of the results."""

    def stage(self, name: Text, detail: Text = "") -> None:
        """Report that a new stage begins."""

    def step(self, done: float, total: float, detail: Text = "") -> None:
        """Report that `done` of `total` of the stage is done."""

    def note(self, text: Text) -> None:
        """Report a remark for the user."""

    def saved(self, folder: Path) -> None:
        """Report that a job has ended, by itself or not, and that its session is in this folder."""


class Silent:
    """Shows nothing."""

    def stage(self, name: Text, detail: Text = "") -> None: ...

    def step(self, done: float, total: float, detail: Text = "") -> None: ...

    def note(self, text: Text) -> None: ...

    def saved(self, folder: Path) -> None: ...
