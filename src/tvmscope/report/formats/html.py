"""Writes one self-contained page: it works offline, loads nothing, and runs no script but its own.

The page's security policy names its scripts by their hashes, so that a name from a model could not
run one even if it got past the templates' escaping.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined

from tvmscope.core.session import Session
from tvmscope.messages import _, language, plural
from tvmscope.quantities import format_s
from tvmscope.report.escape import clean
from tvmscope.report.renderers import Renderer
from tvmscope.report.sections import charts, summary, view
from tvmscope.report.sections.page import Part


def render(sessions: Sequence[Session]) -> str:
    """Return a page with every session, and first their summary if there are several."""
    parts = [Part(session, f"m{number}") for number, session in enumerate(sessions, 1)]
    figures = [figure for part in parts for figure in part.figures]
    environment = templates()
    script = environment.get_template("script.js.j2").render()
    plotly = _plotly() if figures else b""
    lines = [summary.summarize(s) for s in sessions]
    return environment.get_template("page.html.j2").render(
        parts=parts,
        figures=figures,
        script=script,
        script_hash=script_hash(script),
        plotly=base64.b64encode(_packed(plotly)).decode() if plotly else "",
        plotly_hash=_hash(plotly) if plotly else "",
        summaries=lines if len(lines) > 1 else [],
        mean=summary.geometric_mean(lines),
        view=view,
        charts=charts,
    )


@cache
def templates() -> Environment:
    """Return the templates, which escape all values."""
    environment = Environment(
        loader=PackageLoader("tvmscope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    # the extension adds this method
    environment.install_gettext_callables(_, plural, newstyle=True)  # type: ignore[attr-defined]
    # In a template `_` makes its text trusted HTML: a value that comes from a session, even if it
    # should be a word of the vocabulary, goes through `word` instead.
    environment.globals["language"] = language
    filters = {"clean": clean, "seconds": format_s, "word": lambda text: clean(_(text), 20)}
    environment.filters |= filters
    return environment


def _plotly() -> bytes:
    """Return the drawing library of the plotly package."""
    return resources.files("plotly").joinpath("package_data/plotly.min.js").read_bytes()


@cache
def _packed(library: bytes) -> bytes:
    """Compress it to less than a third of its size; browsers can unpack it themselves."""
    return gzip.compress(library, 9, mtime=0)


def script_hash(script: str) -> str:
    """Return the hash by which the page's policy allows a script."""
    return _hash(script.encode())


def _hash(script: bytes) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode()


RENDERER = Renderer("html", ".html", render)
