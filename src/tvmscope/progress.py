"""How long work tells what it is doing; the command line shows it, tests ignore it."""

from __future__ import annotations

from typing import Protocol

from tvmscope.messages import Text


class Progress(Protocol):
    """Receives the current stage, how far it is, and remarks worth a line."""

    def stage(self, name: Text, detail: Text = "") -> None:
        """A new stage begins."""

    def step(self, done: float, total: float, detail: Text = "") -> None:
        """The stage is `done` of `total`."""

    def note(self, text: Text) -> None:
        """A remark for the user."""


class Silent:
    """Shows nothing."""

    def stage(self, name: Text, detail: Text = "") -> None: ...

    def step(self, done: float, total: float, detail: Text = "") -> None: ...

    def note(self, text: Text) -> None: ...
