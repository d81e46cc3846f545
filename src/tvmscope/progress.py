"""How long-running work reports its progress; the command line shows it, tests ignore it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tvmscope.messages import Text


class Progress(Protocol):
    """Receives the current stage, how far it is, remarks worth a line, and where work is kept."""

    def stage(self, name: Text, detail: Text = "") -> None:
        """A new stage begins."""

    def step(self, done: float, total: float, detail: Text = "") -> None:
        """The stage is `done` of `total`."""

    def note(self, text: Text) -> None:
        """A remark for the user."""

    def saved(self, folder: Path) -> None:
        """A job has ended, by itself or not, and its session lies in this folder."""


class Silent:
    """Shows nothing."""

    def stage(self, name: Text, detail: Text = "") -> None: ...

    def step(self, done: float, total: float, detail: Text = "") -> None: ...

    def note(self, text: Text) -> None: ...

    def saved(self, folder: Path) -> None: ...
