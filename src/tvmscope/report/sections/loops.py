"""Renders a kernel's loop nest as indented lines, for the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvmscope.core.profile import KernelIR, Loop
from tvmscope.messages import _
from tvmscope.report.escape import clean

MOST_LINES = 60


@dataclass(frozen=True)
class Line:
    """A loop with its mode, or a statement, which has none."""

    indent: str
    text: str
    mode: str = ""


def lines(kernel: KernelIR) -> list[Line]:
    """Return the loop nest, outermost loop first; a very long one is cut."""
    return nest(kernel.tree)


def nest(tree: tuple[Loop, ...]) -> list[Line]:
    """Return the same for loops without a kernel."""
    found = [line for loop in tree for line in _walk(loop, 0)]
    rest = len(found) - MOST_LINES
    more = [Line("", _("... and {n} more lines").format(n=rest))] if rest > 0 else []
    return found[:MOST_LINES] + more


def _walk(loop: Loop, depth: int) -> Iterator[Line]:
    indent = "  " * min(depth, 30)
    if loop.extent is None:
        yield Line(indent, clean(loop.text, 110))
    else:
        text = _("for {name} in {extent}").format(name=clean(loop.text, 60), extent=loop.extent)
        yield Line(indent, text, clean(loop.mode, 20))
    for inner in loop.body:
        yield from _walk(inner, depth + 1)
