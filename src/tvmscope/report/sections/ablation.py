"""Renders the worth of each optimisation, as a table for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tvmscope.analysis.ablation import Effect, effects
from tvmscope.core.session import Session
from tvmscope.messages import _, marked
from tvmscope.quantities import format_s
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.escape import markdown as escape
from tvmscope.report.sections import markdown_parts

_STYLES = {"helps": "green", "hurts": "bold red", "undecided": "yellow"}
_TITLES = {
    "without": marked("Each optimisation left out, all others kept"),
    "warm-up": marked("The first timed run, against warm ones"),
    "only": marked("Each optimisation alone, all others left out"),
}
_HEAD = (
    marked("optimisation"), marked("with it"), marked("without it"), marked("factor"),
    marked("worth"),
)  # fmt: skip
NUMBERS = range(1, 4)
"""The columns that are numbers."""


@dataclass(frozen=True)
class Block:
    """The effects of one direction: a table, and lines about effects without a number."""

    title: str
    rows: tuple[tuple[Effect, tuple[str, ...]], ...]
    lines: tuple[str, ...]


def blocks(session: Session) -> list[Block]:
    """Return all effects of an ablation as text; empty for other sessions."""
    found, every = [], effects(session)
    for direction, title in _TITLES.items():
        mine = [e for e in every if e.direction == direction]
        rows = tuple((e, _cells(e)) for e in mine if e.factor is not None)
        reasons: dict[str, list[str]] = {}
        for effect in mine:
            if effect.factor is None:
                reasons.setdefault(effect.reason or "", []).append(clean(effect.name, NAME_LIMIT))
        lines = tuple(f"{', '.join(names)}: {clean(why)}" for why, names in reasons.items())
        if mine:
            found.append(Block(_(title), rows, lines))
    return found


def render(session: Session) -> RenderableType:
    """Render all effects for the terminal; nothing if there are none."""
    return Group(*(part for block in blocks(session) for part in _drawn(block)))


def markdown(session: Session) -> Iterator[str]:
    """Yield the same for a Markdown document."""
    for block in blocks(session):
        yield f"### {escape(block.title)}"
        if block.rows:
            yield markdown_parts.table(
                [_(name) for name in _HEAD],
                ([escape(cell) for cell in cells] for _e, cells in block.rows),
            )
        if block.lines:
            yield "\n".join(f"- {escape(line)}" for line in block.lines)


def _drawn(block: Block) -> Iterator[RenderableType]:
    yield Text(block.title, style="bold")
    if block.rows:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for index, name in enumerate(_HEAD):
            table.add_column(_(name), justify="right" if index in NUMBERS else "left")
        for effect, cells in block.rows:
            texts = [Text(cell) for cell in cells]
            texts[-1].stylize(_STYLES.get(effect.worth, "dim"))
            table.add_row(*texts)
        yield table
    yield from (Text(f"  {line}", style="dim") for line in block.lines)
    yield Text("")


def _cells(effect: Effect) -> tuple[str, ...]:
    reason = f" ({clean(effect.reason)})" if effect.reason else ""
    return (
        clean(effect.name, NAME_LIMIT),
        format_s(effect.with_s),
        format_s(effect.without_s),
        _factor(effect),
        _(effect.worth) + reason,
    )


def _factor(effect: Effect) -> str:
    if effect.factor is None:
        return "-"
    text = f"{effect.factor:.3g}x"
    if effect.ci95 is None:
        return text
    return f"{text} [{effect.ci95[0]:.3g}, {effect.ci95[1]:.3g}]"
