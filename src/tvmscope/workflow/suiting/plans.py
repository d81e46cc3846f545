"""Plans a suite: each problem with its own options and its key, and which of them are done."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvmscope.stages.options import Options
from tvmscope.workflow.suiting.keys import key_of
from tvmscope.workflow.suiting.options import SuiteOptions
from tvmscope.workflow.suiting.problems import Problem
from tvmscope.workflow.suiting.store import Store

DEFAULT_BACKENDS = {True: ("tvmscope", "onnxruntime"), False: ("tvmscope", "torch")}
"""For an ONNX file, and for everything else: ours, and the framework of the model."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A problem to measure, with its own options and the key of its row."""

    problem: Problem
    options: Options
    key: str


def planned(
    problem: Problem, options: Options, how: SuiteOptions, *, any_machine: bool = False
) -> Planned:
    """Return a problem with its default backends; on a cluster any of its machines may measure
    it."""
    if not options.backends and not how.all_backends:
        is_onnx = problem.source.partition(":")[0].endswith(".onnx")
        options = replace(options, backends=DEFAULT_BACKENDS[is_onnx])
    limits: dict[str, float | int | None] = {
        "timeout_s": how.timeout_s,
        "memory_bytes": how.memory_bytes,
    }
    key = key_of(problem, options, limits, any_machine=any_machine)
    return Planned(problem=problem, options=options, key=key)


def is_done(plan: Planned, store: Store, how: SuiteOptions) -> bool:
    """Whether a row of the same key exists (and is correct, if others are to be retried)."""
    row = store.rows.get(plan.problem.name)
    return row is not None and row.key == plan.key and (row.is_right or not how.retry)
