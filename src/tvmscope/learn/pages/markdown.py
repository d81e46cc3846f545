"""Writes a lesson as Markdown, with its figures as files beside it: a page of the site."""

from __future__ import annotations

from collections.abc import Iterable

from tvmscope.learn.pages.document import Block, Code, Figure, Heading, Paragraph, Rows
from tvmscope.report.escape import markdown as escape

_LONG = 10_000


def to_markdown(blocks: Iterable[Block], name: str) -> tuple[str, dict[str, str]]:
    """Return the document, and its figures by file name."""
    parts: list[str] = []
    files: dict[str, str] = {}
    for block in blocks:
        if isinstance(block, Figure):
            file = f"{name}-{len(files) + 1}.svg"
            files[file] = block.svg
            parts.append(f"![{escape(block.words)}]({file})")
        else:
            parts.append(_part(block))
    return "\n\n".join(parts) + "\n", files


def _part(block: Heading | Paragraph | Code | Rows) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {escape(block.text, _LONG)}"
    if isinstance(block, Code):
        return f"```{block.language}\n{block.text}\n```"
    if isinstance(block, Rows):
        return _table(block)
    text = escape(block.text, _LONG)
    return f"*{text}*" if block.quiet else text


def _table(block: Rows) -> str:
    lines = [block.head, ["---", *["---:"] * (len(block.head) - 1)]]
    cells = [[escape(cell) for cell in row] for row in block.rows]
    head, rule = ([escape(c) for c in lines[0]], lines[1])
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *cells))
