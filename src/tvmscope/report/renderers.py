"""What a renderer is, and how they are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvmscope.core.session import Session
from tvmscope.errors import UsageError
from tvmscope.plugins import discover


@dataclass(frozen=True)
class Renderer:
    """A format: `render` turns sessions (one, or those of several models) into a document."""

    name: str
    suffix: str
    render: Callable[[list[Session]], str]


def renderers() -> dict[str, Renderer]:
    """Every renderer of this package, by the name of its format."""
    found, _failures = discover("tvmscope.report", "RENDERER")
    return {renderer.name: renderer for renderer in found.values()}


def renderer(name: str) -> Renderer:
    """The renderer of a format."""
    known = renderers()
    if name not in known:
        raise UsageError(f"unknown format '{name}'; there are {', '.join(sorted(known))}")
    return known[name]
