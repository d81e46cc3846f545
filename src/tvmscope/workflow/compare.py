"""Compares two sessions as they are, or two artifacts by measuring both anew, in turns."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tvmscope.core import stats
from tvmscope.core.changes import Changes, RowChange, changes
from tvmscope.core.comparison import compare
from tvmscope.core.measurement import Result
from tvmscope.core.progress import Progress, Silent
from tvmscope.core.session import FILE_NAME, load
from tvmscope.diagnose.operators import is_tvm_scatter
from tvmscope.errors import AccuracyError, Incomparable, RegressionError, UsageError
from tvmscope.messages import _
from tvmscope.units import format_s
from tvmscope.workflow.options import Options

_META = "meta.json"


def compare_paths(
    before: Path, after: Path, options: Options, progress: Progress | None = None
) -> Changes:
    """What `after` changed against `before`: both sessions, or both artifacts."""
    kinds = [_is_artifact(path) for path in (before, after)]
    if all(kinds):
        return _artifacts(before, after, options, progress or Silent())
    if any(kinds):
        raise UsageError(
            f"{before} and {after}: a session and an artifact; give two of one kind, or measure "
            "the artifact with tvmscope run -o"
        )
    return changes(load(before), load(after))


def _is_artifact(path: Path) -> bool:
    return (path / _META).is_file() and not (path / FILE_NAME).exists()


def _artifacts(before: Path, after: Path, options: Options, progress: Progress) -> Changes:
    """Both in one measurement; the second is verified against the outputs of the first."""
    from tvmscope.bench.run import run
    from tvmscope.compiler import artifact as artifacts
    from tvmscope.core.files import write_npz
    from tvmscope.measure.worker import Worker
    from tvmscope.workflow import stages
    from tvmscope.workflow.run import entry_for, inputs_for

    found = [artifacts.read(path) for path in (before, after)]
    for artifact in found:
        artifacts.check(artifact)
    if found[0].model_digest != found[1].model_digest or found[0].inputs != found[1].inputs:
        raise Incomparable(f"{before} and {after} are artifacts of different models or shapes")
    if all(any("scatter_" in call.kernel and not is_tvm_scatter(call.kernel) for call in a.kernels)
           for a in found):  # fmt: skip
        progress.note(
            _("both artifacts have the fast scatter kernels: to see what these bring, compile one "
              "with --no-fast-scatter")
        )  # fmt: skip
    with TemporaryDirectory(prefix="tvmscope-") as scratch:
        write_npz(Path(scratch) / "inputs.npz", inputs_for(found[0], options))
        entries = [entry_for(artifact, scratch, options) for artifact in found]
        outputs = Path(scratch) / "outputs.npz"
        first = entries[0]
        with Worker("before", env=first.env, timeout_s=options.measure.timeout_s) as worker:
            worker.load(first.load, first.request)
            worker.outputs(outputs)
        old, new = run(
            entries,
            options.measure,
            reference=outputs,
            reference_name=str(before),
            tolerances=lambda task: stages.tolerance(options, task),
            progress=progress,
            on_update=lambda partial: None,
        )
    return Changes(rows=(_measured(old, new),))


def _measured(old: Result, new: Result) -> RowChange:
    if new.status == "wrong":
        raise AccuracyError(f"the second artifact computes something else: {new.reason}")
    found = compare(new, old, across=True)
    assert old.measurement is not None  # `compare` has asked
    assert new.measurement is not None
    return RowChange(
        label=old.task.variant.label,
        target=old.task.target,
        before_s=stats.median_s(old.measurement),
        after_s=stats.median_s(new.measurement),
        speedup=found.speedup,
        ci95=found.ci95,
        verdict=found.verdict,
        through=None,
    )


def check_regression(found: Changes, limit: float) -> None:
    """Raise where a row of ours has surely become slower by more than `limit`."""
    worse = [
        f"{row.label} @ {row.target} by {1 / row.speedup - 1:.1%} "
        f"({format_s(row.before_s)} -> {format_s(row.after_s)})"
        for row in found.rows
        if row.ours and row.verdict == "slower" and 1 / row.speedup > 1 + limit
    ]
    if worse:
        raise RegressionError(f"slower than {limit:.0%} allow: {', '.join(worse)}")
