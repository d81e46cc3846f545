"""Search: MetaSchedule's traces compared with the numbers of a rule, on one matrix product."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import date
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError
from tvmscope.learn import exercises
from tvmscope.learn.facts import Exhibit
from tvmscope.learn.lesson import Lesson, Params
from tvmscope.learn.lessons import matmul
from tvmscope.learn.workloads import MATMUL
from tvmscope.machine import cpu_features
from tvmscope.measure.remote import here
from tvmscope.messages import Text, msg, msgn

if TYPE_CHECKING:
    from tvm import tirx

STORED = Path(__file__).parent / "search_curve.json"
TRIALS = 32
"""The trials of each search; both together take less than a minute on two cores."""
_SHOWN = (1, 2, 4, 8, 16, 32, 64)
_BATCH = 16
_NEAR = 0.95
_ROWS, _REGISTERS, _UNROLL = (2, 3, 4, 6, 8, 12), (1, 2, 3), (1, 2, 4, 8)


def space(target: Target) -> list[dict[str, int]]:
    """Return every combination of the rule's numbers: tiles that divide the matrix."""
    lanes = target.vector_bits // 32
    return [
        {"rows": r, "columns": c * lanes, "unroll": u}
        for r, c, u in product(_ROWS, _REGISTERS, _UNROLL)
    ]


def exhibits(size: int, target: Target, live: bool) -> tuple[Exhibit, ...]:
    """Show the two curves: stored ones, or measured now."""
    if live or not STORED.is_file():
        curves = measured(size, target)
    else:
        curves = json.loads(STORED.read_text())
    return (
        Exhibit(
            title=msg("Two searches of {trials} trials each", trials=curves["trials"]),
            words=msg(
                "The best GFLOP/s after so many trials; {size} x {size}, {threads}, "
                "{cpu}, {date}. --run measures a new one here.",
                size=curves["size"],
                threads=msgn("{count} thread", "{count} threads", count=curves["threads"]),
                cpu=curves["cpu"],
                date=curves["date"],
            ),
            code=_table(curves),
        ),
        _reading(curves),
    )


def _table(curves: dict[str, Any]) -> str:
    names = ("MetaSchedule", "rule's numbers")
    lines = [f"{'trials':>8} " + "".join(f"{name:>18}" for name in names)]
    for n in _SHOWN:
        if n <= curves["trials"]:
            best = (max(curves[name][:n], default=0.0) for name in ("metaschedule", "rule"))
            lines.append(f"{n:>8} " + "".join(f"{v:>18.1f}" for v in best))
    return "\n".join(lines)


def _reading(curves: dict[str, Any]) -> Exhibit:
    evolved, sampled = curves["metaschedule"], curves["rule"]
    top = max(*evolved, *sampled)
    reached = [next((i + 1 for i, v in enumerate(r) if v >= _NEAR * top), None)
               for r in (evolved, sampled)]  # fmt: skip
    good = [sum(v >= top / 2 for v in r) for r in (evolved, sampled)]
    words = msg(
        "Of {trials} candidates {evolved} of MetaSchedule's and {sampled} of the rule's reach half "
        "of the best speed. MetaSchedule comes within {near:.0%} of it {first}, the rule's numbers "
        "{second}. MetaSchedule must find the form of a schedule itself, for any computation; a "
        "rule knows one form, and only for what it was written for.",
        trials=curves["trials"],
        evolved=good[0],
        sampled=good[1],
        near=1 - _NEAR,
        first=_when(reached[0]),
        second=_when(reached[1]),
    )
    return Exhibit(title=msg("What the curves say"), words=words)


def _when(trial: int | None) -> Text:
    return msg("not at all") if trial is None else msg("at trial {trial}", trial=trial)


# ---- measuring ---------------------------------------------------------------------------------


def measured(size: int, target: Target) -> dict[str, Any]:
    """Run both searches on this machine; return GFLOP/s of every candidate, 0 if it fails."""
    from tvmscope.runtime import tvm_compat

    tvm = tvm_compat.import_tvm(torch=False)
    tvm_compat.set_thread_count(tvm, target.cores)
    func = MATMUL.make(size)
    rate = rater(size, target)
    return {
        "size": size,
        "threads": target.cores,
        "cpu": cpu_features.model_name(),
        "date": date.today().isoformat(),
        "trials": TRIALS,
        "metaschedule": [round(r, 2) for r in evolved(func, target, rate)],
        "rule": [round(r, 2) for r in _sampled(func, target, rate)],
    }


def _sampled(func: tirx.PrimFunc, target: Target, rate: Callable[[Any], float]) -> Iterator[float]:
    """Yield speeds of the rule's combinations in random order; those that do not fit count as 0."""
    from tvm import s_tir

    points = space(target)
    order = np.random.default_rng(0).permutation(len(points))[:TRIALS]
    for place in order:
        sch = s_tir.Schedule(func)
        try:
            for step in matmul.LESSON.steps:
                if step.apply is not None:
                    step.apply(sch, Params(points[place], target))
            yield rate(sch.mod)
        except (s_tir.ScheduleError, TvmscopeError):
            yield 0.0


def evolved(func: tirx.PrimFunc, target: Target, rate: Callable[[Any], float]) -> Iterator[float]:
    """Yield speeds of MetaSchedule's proposals, generation by generation, with feedback."""
    import tvm
    from tvm import s_tir
    from tvm.s_tir.schedule import Trace

    from tvmscope.tuning.search import evolution

    with TemporaryDirectory(prefix="tvmscope-") as folder:
        file = Path(folder) / "function.json"
        file.write_text(tvm.ir.save_json(func))
        begin = evolution.Begin(
            file=file, target=target, seed=0, count=_BATCH, threads=target.cores, known={}
        )
        left, work = TRIALS, 2.0 * int(func.params[0].shape[0]) ** 3
        while left > 0:
            traces = evolution.propose("learn", begin).traces[:left]
            if not traces:
                return
            told: dict[str, tuple[float, ...] | None] = {}
            for trace in traces:
                sch = s_tir.Schedule(func)
                try:
                    Trace.apply_json_to_schedule(json.loads(trace), sch)
                    speed = rate(sch.mod)
                except (s_tir.ScheduleError, TvmscopeError):
                    speed = 0.0
                told[trace] = (work / (speed * 1e9),) if speed else None
                yield speed
            left -= len(traces)
            evolution.tell("learn", told)


def rater(size: int, target: Target) -> Callable[[Any], float]:
    """Return a function that measures GFLOP/s of a scheduled module; 0 for a wrong one."""
    import tvm

    from tvmscope.compiler.targets import to_tvm
    from tvmscope.learn.lesson import relative_error

    rng = np.random.default_rng(0)
    a, b = (rng.random((size, size), dtype=np.float32) for _ in range(2))
    expected = a @ b
    args = [tvm.runtime.tensor(x) for x in (a, b, np.zeros_like(a))]
    where = tvm.target.Target(to_tvm(target))

    def rate(module: Any) -> float:
        run = tvm.compile(module, target=where).mod["main"]
        run(*args)
        if relative_error(args[-1].numpy(), expected) > MATMUL.tolerance:
            return 0.0
        best, start = float("inf"), time.perf_counter()
        while time.perf_counter() - start < 0.1:
            began = time.perf_counter()
            run(*args)
            best = min(best, time.perf_counter() - began)
        return 2.0 * size**3 / best * 1e-9

    return rate


LESSON = Lesson(
    name="search",
    title=msg("Search: templates and template-free"),
    idea=msg(
        "Which factor is best can be searched: build a candidate, run it, learn, propose the next. "
        "MetaSchedule searches without a template: it derives from the loops themselves what can "
        "be split, moved, vectorised and unrolled, and evolves whole schedules, guided by a model "
        "that learns from the times. AutoTVM, its ancestor, searched the numbers of templates that "
        "people wrote.\n\n"
        "tvmscope searches both: first the few numbers of its own rules, whose form is right for "
        "the machine, then MetaSchedule's schedules. Below both are given the same number of "
        "trials."
    ),
    size=384,
    smallest=48,
    exhibits=here(exhibits),
    exercise=exercises.number(
        msg(
            "The rule above has {rows} values for rows, {registers} for columns and {unroll} for "
            "unroll. How many schedules is that in all?",
            rows=len(_ROWS),
            registers=len(_REGISTERS),
            unroll=len(_UNROLL),
        ),
        lambda study: len(space(study.target)),
        lambda study, right: msg(
            "Yes: {right}, few enough to try them all. MetaSchedule's space for the same loops has "
            "billions.",
            right=right,
        ),
    ),
    closing=msg("Next: tvmscope learn winograd"),
)
