"""Rows of a suite, one of each kind."""

from __future__ import annotations

from dataclasses import replace

from tvmscope.core.suite import Outcome, Speedup, SuiteRow


def row(
    problem: str, outcome: Outcome = "correct", torch: float | None = None, **more: object
) -> SuiteRow:
    made = SuiteRow(
        problem=problem, key="k", outcome=outcome, host="here", cpu="some CPU", took_s=2.0,
        finished="2026-11-16T10:00:00+00:00",
        medians_s={} if torch is None else {"tvmscope": 1e-3, "torch": 1e-3 * torch},
        speedups={} if torch is None else {"torch": Speedup(value=torch)},
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


ROWS = [
    row("a", torch=3.0), row("b", torch=1.6), row("c", torch=0.5, finding="Slow | one"),
    row("d", "noise", torch=1.2, noise=4e-4, error=9e-4), row("e", "wrong", reason="off"),
    row("f", "crashed", reason="killed by signal 11"), row("g", fallbacks=("x",), operators=2),
    row("h", "out of memory"), row("i", "timed out"), row("j", "unsupported"),
]  # fmt: skip
