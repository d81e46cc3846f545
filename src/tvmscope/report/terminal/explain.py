"""Shows findings and kernels in the terminal: what is slow and why, and effects of schedules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from tvmscope.analysis import roofline
from tvmscope.core.diagnosis.findings import Attempt, Finding
from tvmscope.core.profile import Buffer, KernelIR, Loop
from tvmscope.core.session import Session
from tvmscope.messages import _, plural
from tvmscope.quantities import format_bytes, format_rate, format_s, format_shape
from tvmscope.report.escape import NAME_LIMIT, clean
from tvmscope.report.sections import charts
from tvmscope.report.sections import fixes as _fixes
from tvmscope.report.sections.schedule import in_words

_SEVERITIES = {"high": "bold red", "medium": "yellow", "low": "cyan", "info": "dim"}
_MODES = {
    "parallel": "bold green", "vectorized": "bold magenta", "unrolled": "yellow", "serial": "dim",
}  # fmt: skip
_SIDE_BY_SIDE = 140
"""From this terminal width on, two kernels are shown side by side."""


def findings(session: Session, history: Sequence[Attempt] = ()) -> RenderableType:
    """Return every finding with its evidence, advice and worth; or a sentence that there is none.

    `history` contains all fixes that were tried on this machine.
    """
    parts: list[RenderableType] = [Text(clean(session.model.name, NAME_LIMIT), style="bold")]
    if not session.findings:
        parts.append(Text(_("No findings: no rule applies to what was measured.")))
    if not session.profiles:
        text = _("The session has no kernel profile, which most rules need (tvmscope analyze).")
        parts.append(Text(text, style="yellow"))
    for index, finding in enumerate(session.findings, start=1):
        parts += [Text(""), *_finding(index, finding)]
    if session.fixes:
        parts += [Text(""), fixes(session.fixes)]
    if line := _fixes.calibration(history):
        text = _("calibration on this machine: {line}").format(line=line)
        parts += [Text(""), Text(text, style="dim")]
    parts += [
        Text(_("warning: "), style="yellow").append(clean(w))
        for w in session.warnings
        if w.startswith("diagnosis")
    ]
    return Group(*parts)


def fixes(attempts: Sequence[Attempt]) -> Table:
    """Return the attempted fixes with the predicted and the achieved saving."""
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim",
        title=_("Fixes that were tried"), title_justify="left", title_style="bold",
    )  # fmt: skip
    numbers = (2, 3, 4)
    for index, title in enumerate(_fixes.head()):
        table.add_column(title, justify="right" if index in numbers else "left", overflow="fold")
    for row in _fixes.rows(attempts):
        table.add_row(*map(Text, _fixes.cells(row)), style="green" if row.kept else "")
    return table


def _finding(place: int, finding: Finding) -> Iterator[RenderableType]:
    title = Text(f"{place}. ").append(clean(finding.title), style="bold")
    title.append(
        f"  {clean(_(finding.severity), NAME_LIMIT)}", style=_SEVERITIES.get(finding.severity, "")
    )
    if finding.saving_s:
        title.append(_("  saves about {time}").format(time=format_s(finding.saving_s)))
    if finding.effort != "none":
        title.append(
            _("  effort: {effort}").format(effort=clean(_(finding.effort), NAME_LIMIT)), style="dim"
        )
    yield title.append(f"  [{clean(finding.rule, NAME_LIMIT)}]", style="dim")
    yield _indented(Text(clean(finding.evidence, 700)))
    yield _indented(Text(clean(finding.advice, 400), style="green"))
    if finding.fix:
        shown = ", ".join(f"{key} = {value}" for key, value in finding.fix.items())
        yield _indented(Text(_("fix: {fix}").format(fix=clean(shown)), style="cyan"))
    if finding.achieved_s is not None:
        text = _("tried: it saved {time}").format(time=format_s(finding.achieved_s))
        yield _indented(Text(text, style="bold"))


def _indented(text: Text) -> Padding:
    """Indent every line, also if a narrow terminal breaks it; add no padding at the end."""
    return Padding(text, (0, 0, 0, 3), expand=False)


@dataclass(frozen=True)
class Titled:
    """A kernel, and its origin."""

    title: str
    session: Session
    ir: KernelIR


@dataclass(frozen=True)
class KernelView:
    """One kernel, or several side by side if the terminal is wide enough."""

    kernels: tuple[Titled, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        views = [_kernel(titled, alone=len(self.kernels) == 1) for titled in self.kernels]
        if len(views) > 1 and options.max_width >= _SIDE_BY_SIDE:
            grid = Table.grid(padding=(0, 3), expand=True)
            for _view in views:
                grid.add_column(ratio=1, overflow="fold")
            grid.add_row(*views)
            yield grid
        else:
            for view in views:
                yield from (view, Text(""))


def _kernel(titled: Titled, *, alone: bool) -> RenderableType:
    ir = titled.ir
    parts: list[RenderableType] = []
    if not alone:
        title = titled.title if ir.key is None else f"{titled.title} · {ir.key.label}"
        parts.append(Text(clean(title), "underline"))
    parts += [Text(clean(ir.name, 120), style="bold"), *_facts(titled), Text("")]
    parts += [loop_tree(ir.tree), Text(""), _buffers(ir.buffers), Text("")]
    if words := next((r.words for r in titled.session.rules if r.name == ir.rule), None):
        parts.append(Text(clean(_(words)), style="dim"))  # below, so that trees are side by side
    steps = in_words(ir.trace)
    if steps:
        parts.append(Text(_("schedule (2.4b: stage 2, loop 4, part b)"), style="dim"))
        parts.append(_numbered(steps))
    else:
        parts.append(Text(_("No schedule was recorded."), style="yellow"))
    return Group(*parts)


def _numbered(steps: Sequence[str]) -> Table:
    """Return a grid, which aligns the broken lines of a step with its first one."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(justify="right", min_width=4)
    for number, step in enumerate(steps, start=1):
        grid.add_row(f"{number}.", Text(clean(step)))
    return grid


def _facts(titled: Titled) -> Iterator[Text]:
    ir, session = titled.ir, titled.session
    facts = [_("rule: {rule}").format(rule=ir.rule) if ir.rule else _("no schedule rule took it")]
    if ir.tuned:
        facts.append(_("tuned: {origin}").format(origin=ir.tuned.origin))
    if ir.flops is not None:
        facts.append(_("{count} MFLOP per call").format(count=format_rate(ir.flops / 1e6)))
    if ir.bytes is not None:
        facts.append(_("{bytes} per call").format(bytes=format_bytes(ir.bytes)))
    yield Text(" · ".join(clean(fact) for fact in facts))
    points = {(p.key, p.kernel): p for p in roofline.points(session)}
    for profile in session.profiles:
        found = [k for k in profile.kernels if k.name == ir.name]
        if not found or not ir.is_of(profile.key):
            continue
        calls, total = sum(k.calls for k in found), sum(k.total_s for k in found)
        text = plural("{backend}: {time} in {n} call", "{backend}: {time} in {n} calls", calls)
        text = text.format(backend=profile.key.name, time=format_s(total), n=calls)
        if point := points.get((profile.key, ir.name)):
            text += _(", {share:.0%} of its roof, bound by {bound}").format(
                share=point.share, bound=_(point.bound)
            )
        yield Text(clean(text))
        if symbol := next((k.symbol for k in found if k.symbol), None):
            text = _("the library's kernel: {symbol}; matrix instruction: {instruction}").format(
                symbol=symbol, instruction=charts.matrix(found[0], ir)
            )
            yield Text(clean(text, 240))
        sources = dict.fromkeys(op for k in found for op in k.source_ops)
        if sources:
            yield Text(_("computes {ops}").format(ops=clean(", ".join(sources))), style="dim")


def loop_tree(nodes: tuple[Loop, ...]) -> Tree:
    """Return a loop nest, its modes in colour."""
    tree = Tree(Text(_("loops"), style="dim"), guide_style="dim")
    _grow(tree, nodes)
    return tree


def _grow(tree: Tree, nodes: tuple[Loop, ...]) -> None:
    for node in nodes:
        if node.extent is None:
            label = Text(clean(node.text), style="cyan" if not node.body else "")
        else:
            label = Text(clean(node.mode, NAME_LIMIT), style=_MODES.get(node.mode, "bold blue"))
            label.append(f" {clean(node.text, NAME_LIMIT)}").append(f" x {node.extent}", "bold")
        _grow(tree.add(label), node.body)


def _buffers(buffers: tuple[Buffer, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in (_("buffer"), _("shape"), _("type"), _("scope")):
        table.add_column(title, overflow="fold")
    table.add_column(_("size"), justify="right", no_wrap=True)
    for b in buffers:
        cells = (clean(b.name, NAME_LIMIT), format_shape(b.shape), clean(b.dtype, 20), b.scope)
        table.add_row(*(Text(clean(c)) for c in cells), Text(format_bytes(_size(b))))
    return table


def _size(buffer: Buffer) -> float | None:
    if any(d < 0 for d in buffer.shape):
        return None  # known only at run time
    try:
        width = np.dtype(buffer.dtype).itemsize
    except TypeError:
        width = 2 if "16" in buffer.dtype else 1  # bfloat16 and the eight-bit floats
    return float(math.prod(buffer.shape) * width)
