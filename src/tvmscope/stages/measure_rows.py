"""The stage that measures: it loads, verifies, times in turns and compares rows, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tvmscope.benchmark.compare import compare_all
from tvmscope.benchmark.entry import Entry
from tvmscope.benchmark.run import Results, pending, run
from tvmscope.core.comparison import Comparison
from tvmscope.core.model import Prepared
from tvmscope.core.row import Task
from tvmscope.measure.worker import Worker
from tvmscope.progress import Progress
from tvmscope.stages.exact_reference import ExactReference
from tvmscope.stages.options import Options
from tvmscope.stages.sensitivity import Sensitivity

REFERENCES = {"torch": "torch", "onnx": "onnxruntime"}
"""The framework whose outputs verify a model of each format."""

Compare = Callable[[Results], tuple[Comparison, ...]]


@dataclass(frozen=True)
class Expected:
    """The outputs against which rows are verified, and their origin."""

    outputs: Path
    name: str
    prepared: Path | None = None
    """The model's folder, if the framework can estimate the model's sensitivity to rounding."""
    truth_of: Path | None = None
    """The same folder, if the framework can run the model in float64."""


@dataclass(frozen=True)
class MeasuredRows:
    """A result per row, in order, and their comparisons."""

    results: Results
    comparisons: tuple[Comparison, ...]


def measure_rows(
    entries: Sequence[Entry],
    options: Options,
    expected: Expected,
    progress: Progress,
    *,
    compare: Compare = compare_all,
    on_update: Callable[[MeasuredRows], object] | None = None,
    log_dir: Path | None = None,
) -> MeasuredRows:
    """Load and verify every row, time all in interleaved rounds, and compare them.

    Whatever happens to a row is its result. `on_update` sees what there is after each load and
    each round, and a last time when measuring is interrupted.
    """

    def measured(results: Results) -> MeasuredRows:
        return MeasuredRows(results, compare(results))

    def tell(results: Results) -> None:
        if on_update is not None:
            on_update(measured(results))

    results = run(
        entries,
        options.measure,
        reference=expected.outputs,
        reference_name=expected.name,
        tolerances=partial(tolerance, options),
        atol=options.atol,
        noise=Sensitivity(expected.prepared, options.measure.timeout_s).of,
        exact=ExactReference(expected.truth_of, expected.outputs, progress).of,
        progress=progress,
        on_update=tell,
        log_dir=log_dir,
    )
    return measured(results)


def unmeasured(entries: Sequence[Entry]) -> MeasuredRows:
    """Return the results of rows before they are loaded."""
    return MeasuredRows(pending(entries), ())


def framework_outputs(ready: Prepared) -> Expected:
    """Return the outputs of the framework that the model came from."""
    framework = REFERENCES[ready.model.format]
    truth_of = ready.folder if framework == "torch" else None
    return Expected(ready.reference_path, framework, ready.folder, truth_of)


def own_outputs(entry: Entry, options: Options, name: str, outputs: Path) -> Expected:
    """Return the outputs of a row in a separate run; they are written to a file."""
    with Worker(entry.key.label, env=entry.env, timeout_s=options.measure.timeout_s) as worker:
        worker.load(entry.load, entry.request)
        worker.outputs(outputs)
    return Expected(outputs, name)


def tolerance(options: Options, task: Task) -> float:
    """Return the largest accepted error of a task's outputs."""
    if options.tolerance is not None:
        return options.tolerance
    return task.variant.precision.tolerance
