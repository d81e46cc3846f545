"""Shows results for images as a table for the terminal, and as machine output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tvmscope.core.session import Session, to_json
from tvmscope.core.vision import Answer
from tvmscope.messages import Message, _
from tvmscope.messages import Text as Said
from tvmscope.quantities import format_s
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.storage.codec import encode


def render(answers: Sequence[Answer]) -> RenderableType:
    """Return a block per image: the results, and the times."""
    return Group(*(_block(answer) for answer in answers))


def machine(answers: Sequence[Answer], session: Session | None) -> dict[str, Any]:
    """Return the JSON form; `session` is null unless the artifact was measured in the same call."""
    return {
        "schema_version": 1,
        "pictures": encode(answers),
        "session": None if session is None else to_json(session),
    }


def without_folders(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Return the same without the folders of the images."""
    return tuple(
        replace(
            answer,
            picture=(name := PurePath(answer.picture).name),
            failure=answer.failure and _renamed(answer.failure, answer.picture, name),
        )
        for answer in answers
    )


def _renamed(text: Said, old: str, new: str) -> Said:
    """The text with another name in it; a message stays one, which can be translated."""
    if not isinstance(text, Message):
        return text.replace(old, new)
    told = {k: _renamed(v, old, new) if isinstance(v, str) else v for k, v in text.args.items()}
    return Message(text.id, told, text.plural)


def _block(answer: Answer) -> RenderableType:
    title = Text(clean(answer.picture), style="bold")
    if answer.failure is not None:
        return Group(title, Text(f"  {clean(answer.failure, 500)}", style="red"))
    title.append(f"  {answer.width}x{answer.height}", style="dim")
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(justify="right")
    for label in answer.labels:
        table.add_row(f"{label.score:.1%}", Text(clean(label.name, NAME_LIMIT)), str(label.index))
    for box in answer.boxes:
        place = ", ".join(f"{c:.0f}" for c in box.corners)
        table.add_row(f"{box.score:.3f}", Text(clean(box.name, NAME_LIMIT)), Text(f"[{place}]"))
    if answer.task == "detect" and not answer.boxes:
        table.add_row("-", _("nothing found above the score threshold"))
    spent = ", ".join(f"{_(name)} {format_s(s)}" for name, s in answer.times_s.items())
    return Group(title, table, Text(f"  {spent}", style="dim"))
