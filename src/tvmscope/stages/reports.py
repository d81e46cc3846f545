"""Writes the documents of a session's folder: report.html, and report.md with its figures."""

from __future__ import annotations

import getpass
from pathlib import Path

from tvmscope.core.session import Session
from tvmscope.errors import one_line
from tvmscope.messages import msg
from tvmscope.progress import Progress
from tvmscope.report.redact import redact
from tvmscope.report.renderers import renderer

FORMATS = ("html", "markdown")


def write(session: Session, folder: Path, progress: Progress, *, redacted: bool) -> None:
    """Render the session into its own folder, and report the location."""
    shown = without_names(session) if redacted else session
    for name in FORMATS:
        try:
            chosen = renderer(name)
            files = chosen.write([shown], folder / f"report{chosen.suffix}")
        except Exception as e:  # the session is saved: an image that fails must not undo that
            why = f"{type(e).__name__}: {one_line(e)}"
            progress.note(msg("report: no {name}: {why}", name=name, why=why))
        else:
            progress.note(msg("report: {file}", file=files[0]))


def without_names(session: Session) -> Session:
    """Return the session without data that identify the user and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a user id without a name
        user = ""
    return redact(session, user=user)
