"""What a command would do, for `--dry-run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvmscope.core.options import MeasureOptions
from tvmscope.models.resolve import classify
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import plan_rows
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.stages.targets import resolve_targets, threads_of
from tvmscope.tuning.records.lookup import find_choices, records_of
from tvmscope.workflow.compile import check_one


@dataclass(frozen=True)
class Plan:
    """The model, the targets and the rows that would be measured."""

    model: str
    kind: str
    targets: tuple[str, ...]
    threads: int
    rows: tuple[PlannedRow, ...]
    options: Options

    def lines(self) -> list[str]:
        """One line per decision."""
        measure = self.options.measure
        return [
            f"model     {self.model} ({self.kind})",
            *(f"target    {target}" for target in self.targets),
            f"threads   {self.threads}",
            f"measure   {_how(measure)}, {measure.mode}, {measure.cache} caches",
            *(f"backend   {row.key.label}{_why(row)}" for row in self.rows),
        ]


def _how(measure: MeasureOptions) -> str:
    warm = "" if measure.warmup is None else f" after {measure.warmup} warm-up runs"
    if measure.iterations is not None:
        return f"{measure.iterations} runs per backend{warm}"
    return f"{measure.duration_s:g} s per backend, at least {measure.min_rounds} rounds{warm}"


def _why(row: PlannedRow) -> str:
    if row.builds and row.unavailable:
        return f": compiled only, {row.unavailable}"
    return f": unavailable, {row.unavailable}" if row.unavailable else ""


def plan(model: Any, options: Options) -> Plan:
    """Resolve everything that can be resolved without loading the model."""
    source = classify(str(model))
    where = resolve_targets(options)
    form = "onnx" if source.kind == "onnx" else "torch"
    return Plan(
        model=str(model),
        kind=source.kind,
        targets=tuple(target.label for target in where),
        threads=threads_of(options),
        rows=tuple(plan_rows(options, where, form, records_of(options.db))),
        options=options,
    )


def compile_lines(model: Any, output: Path, options: Options) -> list[str]:
    """What `compile` would do: one artifact, nothing measured, no other backend."""
    check_one(options)
    (target,) = resolve_targets(options)
    source, threads = classify(str(model)), threads_of(options)
    found = len(find_choices(options.db, target, threads).choices)
    return [
        f"model     {model} ({source.kind})",
        f"target    {target.label}",
        f"threads   {threads}",
        f"precision {options.precisions[0]}",
        f"pipeline  {options.compile.pipeline}",
        f"tuning    choices for {found} workloads",
        f"artifact  {output}",
    ]
