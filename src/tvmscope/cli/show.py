"""Where output goes: text for people to stderr, machine output to stdout or a file."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvmscope.errors import TvmscopeError, UsageError
from tvmscope.messages import Text, msg, render
from tvmscope.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from tvmscope.core.session import Session
    from tvmscope.stages.options import Options


class InterruptedWork(TvmscopeError):
    """Ctrl-C; the message says where the work so far was saved."""

    exit_code = 130


@dataclass(frozen=True, kw_only=True)
class Show:
    """The flags about showing, and their effects."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    export_times: Path | None = None
    percentiles: tuple[str, ...] = ()
    redact: bool = False
    dry_run: bool = False

    @cached_property
    def console(self) -> Console:
        """Return the terminal for people."""
        from rich.console import Console

        return Console(stderr=True, quiet=self.quiet, highlight=False)

    def text(self, *lines: RenderableType) -> None:
        """Print text for people; strings are printed literally."""
        from rich.text import Text

        for line in lines:
            if isinstance(line, str):
                self.console.print(Text(render(line)), soft_wrap=True)
            else:
                self.console.print(line)

    def machine(self, data: Any) -> None:
        """Print a JSON value on stdout."""
        write(json_module.dumps(data, indent=1, allow_nan=False) + "\n")

    @contextmanager
    def working(self, done: Sequence[Session] = ()) -> Iterator[Progress]:
        """Show progress while something long runs; Ctrl-C becomes an error that names what was
        saved.

        `done` may grow meanwhile: an interruption shows the sessions in it, and the unfinished one
        as far as it has measured rows.
        """
        from tvmscope.cli.progress import showing

        interrupted: KeyboardInterrupt | None = None
        with showing(self.console) as progress:
            try:
                yield progress
            except KeyboardInterrupt as e:
                interrupted = e  # reported once the bar has left the terminal
        if interrupted is not None:
            folder = progress.folder
            if measured := [*done, *_unfinished(folder)]:
                self.sessions(measured, json=False)
            kept = (
                msg("session: {folder}", folder=folder) if folder else msg("nothing was saved yet")
            )
            raise InterruptedWork(msg("interrupted; {kept}", kept=kept)) from interrupted

    def plans(self, models: Sequence[Any], options: Options) -> int:
        """Print what `--dry-run` shows: for each model, what would be done."""
        from tvmscope.workflow.examining.dry_run import plan

        return self.planned([plan(model, options).lines() for model in models])

    def planned(self, plans: Sequence[Sequence[Text]]) -> int:
        """Print plans as lines for people, or as JSON."""
        for lines in plans:
            self.text(*lines)
        if self.json:
            self.machine({"plans": plans})
        return 0

    def presentable(self, sessions: Sequence[Session]) -> list[Session]:
        """Return the sessions as they may be shown: without names if `--redact` is given."""
        from tvmscope.stages.reports import without_names

        return [without_names(s) for s in sessions] if self.redact else list(sessions)

    def sessions(self, sessions: Sequence[Session], *, json: bool = True) -> None:
        """Show tables for people; JSON (unless printed otherwise) and times if requested."""
        from tvmscope.report.formats import console, json_

        shown = self.presentable(sessions)
        self.text(console.render_all(shown, self.percentiles))
        if self.json and json:
            write(json_.render(shown))
        if self.export_times is not None:
            write(json_.times(shown), self.export_times)


def _unfinished(folder: Path | None) -> list[Session]:
    """Return the interrupted job's session, if it was saved with at least one measured row."""
    from tvmscope.core.session import FILE_NAME, load

    if folder is None or not (folder / FILE_NAME).is_file():
        return []
    session = load(folder)
    measured = any(result.measurement is not None for result in session.results)
    return [session] if measured and not session.complete else []


def table_of(*titles: str) -> Table:
    """Return an empty table without lines."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def write(document: str, file: Path | None = None) -> None:
    """Write a document to a file, or to stdout."""
    if file is not None:
        from tvmscope.storage.files import write_text_atomic

        write_text_atomic(file, document)
        return
    sys.stdout.write(document)
    sys.stdout.flush()


def refuse_overwrite(file: Path | None, force: bool) -> None:
    """Refuse to overwrite a file; called before long work, so that no result is lost at its end."""
    if file is not None and file.exists() and not force:
        raise UsageError(msg("{file} exists; --force overwrites it", file=file))


def exit_code(sessions: Sequence[Session], asked: Sequence[str] = ()) -> int:
    """Return 3 if an output is wrong, 130 if interrupted, 5 or 1 if a requested backend has no row,
    1 if a row of ours or a compiled one failed, 5 if no row of ours can run here.

    Backends that were not named may be missing: that is a line in the table, not a failure. A row
    that was cross-compiled for another machine is as requested.
    """
    results = [result for session in sessions for result in session.results]
    if any(r.status == "wrong" for r in results):
        return 3
    if any(not session.complete for session in sessions):
        return 130
    variants = [r.task.variant for r in results if r.status == "failed"]
    if any(variant.is_compiled or variant.pipeline is not None for variant in variants):
        return 1
    named = [r for r in results if r.task.variant.backend in asked and r.build_s is None]
    statuses = {r.status for r in named}
    if "unavailable" in statuses:
        return 5
    if results and all(r.status == "unavailable" for r in results):
        return 5
    if any(_ours_cannot_run(session) for session in sessions):
        return 5
    lost = any(not any(r.status == "ok" for r in session.results) for session in sessions)
    return 1 if lost or "failed" in statuses else 0


def _ours_cannot_run(session: Session) -> bool:
    """Whether a session has rows of ours and none of them was measured or built."""
    ours = [r for r in session.results if r.task.variant.is_ours]
    return bool(ours) and all(r.status == "unavailable" and r.build_s is None for r in ours)
