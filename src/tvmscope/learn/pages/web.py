"""Writes a lesson as one self-contained HTML file, for `tvmscope learn split --html`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from tvmscope.learn.pages.document import Block, Figure, Heading
from tvmscope.messages import language

if TYPE_CHECKING:
    from jinja2 import Template


def to_html(blocks: Iterable[Block]) -> str:
    """Return the document; every text is escaped, figures are our own SVG."""
    parts = [(type(block).__name__, block) for block in blocks]
    title = next(block.text for _kind, block in parts if isinstance(block, Heading))
    return _template().render(parts=parts, title=title, language=language(), drawn=_drawn)


def _drawn(figure: Figure) -> str:
    """Return the figure without the header of a separate SVG file."""
    from markupsafe import Markup

    return Markup(figure.svg[figure.svg.index("<svg") :])  # drawn by us


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("tvmscope.learn.pages", "")
    return Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template("lesson.html.j2")
