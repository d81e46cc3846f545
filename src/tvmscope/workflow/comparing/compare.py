"""Compares two saved sessions, or two artifacts by measuring both again, in turns."""

from __future__ import annotations

from pathlib import Path

from tvmscope.analysis.changes import Changes, changes
from tvmscope.core.session import FILE_NAME, load
from tvmscope.errors import AccuracyError, RegressionError, UsageError
from tvmscope.messages import Seconds, msg
from tvmscope.progress import Progress, Silent
from tvmscope.runtime.tvm_compat import require
from tvmscope.stages.options import Options

_META = "meta.json"


def compare_paths(
    before: Path, after: Path, options: Options, progress: Progress | None = None
) -> Changes:
    """Return the changes from `before` to `after`: both sessions, or both artifacts."""
    kinds = [_is_artifact(path) for path in (before, after)]
    if all(kinds):
        require("tvm", why=msg("comparing artifacts"))
        from tvmscope.workflow.comparing.artifacts import compare_artifacts  # loads TVM's workers

        return compare_artifacts(before, after, options, progress or Silent())
    if options.pictures is not None:
        raise UsageError(msg("--image compares two artifacts; sessions contain no code to run"))
    if any(kinds):
        raise UsageError(
            msg(
                "{before} and {after}: a session and an artifact; give two of one kind, or "
                "measure the artifact with tvmscope run -o",
                before=before,
                after=after,
            )
        )
    return changes(load(before), load(after))


def _is_artifact(path: Path) -> bool:
    return (path / _META).is_file() and not (path / FILE_NAME).exists()


def check_accuracy(found: Changes) -> None:
    """Raise if the second's results differ from those of the first."""
    if found.problem is not None:
        raise AccuracyError(found.problem)


def check_regression(found: Changes, limit: float) -> None:
    """Raise if a row of ours has certainly become slower by more than `limit`."""
    worse = [
        msg(
            "{row} @ {target} by {share:.1%} ({before} -> {after})",
            row=row.label,
            target=row.target,
            share=1 / row.speedup - 1,
            before=Seconds(row.before_s),
            after=Seconds(row.after_s),
        )
        for row in found.rows
        if row.ours and row.verdict == "slower" and 1 / row.speedup > 1 + limit
    ]
    if worse:
        raise RegressionError(
            msg("slower by more than {limit:.0%}: {worse}", limit=limit, worse=worse)
        )
