"""Writes a table for spreadsheets: one line per result, with statistics and comparison."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from typing import Any

from tvmscope.core.session import Session
from tvmscope.report.escape import plain
from tvmscope.report.renderers import Renderer
from tvmscope.report.sections import view
from tvmscope.report.sections.view import ResultLine


def render(sessions: Sequence[Session]) -> str:
    """Render the table; times are seconds, sizes bytes; an unknown value is an empty cell."""
    lines = [
        _line(session, row)
        for session in sessions
        for row in (*view.measured(session), *view.unmeasured(session))
    ]
    return _table(list(_HEAD), lines)


def files(sessions: Sequence[Session], name: str) -> dict[str, str]:
    """Return the table as `name`, and a second one of the kernels if there are profiles."""
    found = {name: render(sessions)}
    if any(session.profiles for session in sessions):
        found[f"{name.removesuffix('.csv')}-kernels.csv"] = _kernels(sessions)
    return found


def _kernels(sessions: Sequence[Session]) -> str:
    """Return one line per kernel of every profile."""
    head = ["model", "backend", "target", "kernel", "source_ops", "kind"]
    head += ["calls", "total_s", "flops", "bytes"]
    lines = [
        [s.model.name, p.key.name, p.key.target, k.name, ";".join(k.source_ops), k.kind,
         k.calls, k.total_s, k.flops, k.bytes]
        for s in sessions
        for p in s.profiles
        for k in p.kernels
    ]  # fmt: skip
    return _table(head, lines)


_HEAD = (
    "model", "backend", "target", "precision", "threads", "status", "reason", "median_s", "mean_s",
    "std_s", "ci95_low_s", "ci95_high_s", "samples", "items_per_run", "build_s", "load_s",
    "peak_memory_bytes", "passed", "error", "cosine", "tvmscope_speedup", "tvmscope_ci95_low",
    "tvmscope_ci95_high", "tvmscope_is",
)  # fmt: skip


def _line(session: Session, row: ResultLine) -> list[Any]:
    result, task, found = row.result, row.result.task, row.summary
    low, high = found.get("ci95_s") or (None, None)
    accuracy, versus = result.accuracy, row.versus
    ratio = (versus.ci95 if versus else None) or (None, None)
    return [
        session.model.name, task.key.name, task.target, str(task.key.precision), task.threads,
        result.status, row.reason, row.median_s, found.get("mean_s"), found.get("std_s"), low, high,
        found.get("samples"), result.items, result.build_s, result.load_s, result.peak_memory_bytes,
        accuracy and accuracy.passed, accuracy and accuracy.error, accuracy and accuracy.cosine,
        versus and versus.speedup, *ratio, versus and versus.verdict,
    ]  # fmt: skip


def _table(head: list[str], lines: list[list[Any]]) -> str:
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in line] for line in lines)
    return stream.getvalue()


def _cell(value: Any) -> Any:
    """Return foreign text in one line; a spreadsheet must not treat it as a formula."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = plain(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "|")) else text


RENDERER = Renderer("csv", ".csv", render, files)
