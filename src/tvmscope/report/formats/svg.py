"""Writes the console's table as an image, for READMEs and slides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO

from rich.console import Console

from tvmscope.core.session import Session
from tvmscope.report.formats.console import render_all
from tvmscope.report.renderers import Renderer

WIDTH = 118
_WEB_FONT = re.compile(r"@font-face\s*\{[^}]*\}\s*")
"""rich loads its font from the network; an image must look the same without it."""


def to_svg(sessions: Sequence[Session]) -> str:
    """Return one SVG document with everything that the console would show."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(render_all(sessions))
    return _WEB_FONT.sub("", console.export_svg(title="tvmscope"))


RENDERER = Renderer("svg", ".svg", to_svg)
