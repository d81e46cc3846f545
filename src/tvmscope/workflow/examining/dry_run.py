"""Describes what a command would do, for `--dry-run`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvmscope.core.options import MeasureOptions
from tvmscope.messages import Text, msg, word
from tvmscope.models.resolve import classify
from tvmscope.stages.device import on_device
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

    def lines(self) -> list[Text]:
        """Return one line per decision."""
        measure = self.options.measure
        return [
            msg("model     {model} ({kind})", model=self.model, kind=self.kind),
            *(msg("target    {target}", target=target) for target in self.targets),
            msg("threads   {threads}", threads=self.threads),
            msg(
                "measure   {how}, {mode}, {cache} caches",
                how=_how(measure),
                mode=measure.mode,
                cache=word(measure.cache),
            ),
            *(msg("backend   {row}{why}", row=row.key.label, why=_why(row)) for row in self.rows),
        ]


def _how(measure: MeasureOptions) -> Text:
    warm = "" if measure.warmup is None else msg(" after {n} warm-up runs", n=measure.warmup)
    if measure.iterations is not None:
        return msg("{n} runs per backend{warm}", n=measure.iterations, warm=warm)
    return msg(
        "{seconds:g} s per backend, at least {rounds} rounds{warm}",
        seconds=measure.duration_s, rounds=measure.min_rounds, warm=warm,
    )  # fmt: skip


def _why(row: PlannedRow) -> Text:
    if row.builds and row.unavailable:
        return msg(": compiled only, {why}", why=row.unavailable)
    return msg(": unavailable, {why}", why=row.unavailable) if row.unavailable else ""


@on_device
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


@on_device
def compile_lines(model: Any, output: Path, options: Options) -> list[Text]:
    """Describe what `compile` would do: one artifact, no measurement, no other backend."""
    check_one(options)
    (target,) = resolve_targets(options)
    source, threads = classify(str(model)), threads_of(options)
    found = len(find_choices(options.db, target, threads).choices)
    return [
        msg("model     {model} ({kind})", model=str(model), kind=source.kind),
        msg("target    {target}", target=target.label),
        msg("threads   {threads}", threads=threads),
        msg("precision {precision}", precision=str(options.precisions[0])),
        msg("pipeline  {name}", name=options.compile.pipeline),
        msg("tuning    choices for {n} workloads", n=found),
        msg("artifact  {folder}", folder=output),
    ]
