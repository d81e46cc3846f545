"""Shows long work: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tvmscope.messages import Text as Words
from tvmscope.messages import msg, render
from tvmscope.report.escape import clean

_LINE_EVERY_S = 10.0


class Notes:
    """Prints the remarks, and remembers where work was saved last, in case it is interrupted."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.folder: Path | None = None

    def stage(self, name: Words, detail: Words = "") -> None: ...

    def step(self, done: float, total: float, detail: Words = "") -> None: ...

    def note(self, text: Words) -> None:
        self._line(text)

    def saved(self, folder: Path) -> None:
        self.folder = folder
        self._line(msg("session: {folder}", folder=folder))

    def _line(self, text: Words) -> None:
        self.console.print(Text(clean(text)), soft_wrap=True)


class Lines(Notes):
    """One line per stage, and one every ten seconds within it, with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._began_s = self._last_s = time.monotonic()
        self._name = ""

    def stage(self, name: Words, detail: Words = "") -> None:
        self._name, self._last_s = render(name), time.monotonic()
        whole = msg("{stage}: {detail}", stage=name, detail=detail) if detail else name
        self._timed(render(whole))

    def step(self, done: float, total: float, detail: Words = "") -> None:
        now = time.monotonic()
        if total > 0 and now - self._last_s >= _LINE_EVERY_S:
            self._last_s = now
            share = msg(
                "{stage}: {share:.0%} {detail}", stage=self._name, share=done / total, detail=detail
            )
            self._timed(render(share))

    def _timed(self, text: str) -> None:
        self._line(f"[{time.monotonic() - self._began_s:.0f} s] {text}")


class Bars(Notes):
    """A live bar; finished stages leave no trace, notes stay above it."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        super().__init__(console)
        self.bar = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[detail]}", markup=False, style="dim"),
            console=console,
            transient=True,
        )
        self._task = self.bar.add_task("", total=None, detail="", visible=False)

    def stage(self, name: Words, detail: Words = "") -> None:
        self.bar.reset(
            self._task, total=None, description=clean(name), visible=True, detail=clean(detail, 60)
        )

    def step(self, done: float, total: float, detail: Words = "") -> None:
        self.bar.update(self._task, completed=done, total=total, detail=clean(detail, 140))


@contextmanager
def showing(console: Console) -> Iterator[Notes]:
    """Show progress while some work runs."""
    if console.quiet or not console.is_terminal:
        yield Notes(console) if console.quiet else Lines(console)
        return
    live = Bars(console)
    with live.bar:
        yield live
