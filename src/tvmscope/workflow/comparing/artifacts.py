"""Compares two artifacts of one model: both are measured in turns, profiled, and run on images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tvmscope.analysis.changes import Changes, RowChange, kernel_changes
from tvmscope.benchmark.entry import Entry
from tvmscope.core import stats
from tvmscope.core.artifact import Artifact
from tvmscope.core.comparison import compare
from tvmscope.core.measurement import Result
from tvmscope.core.vision import HALF_LIKENESS, LIKENESS, Sighting
from tvmscope.errors import Incomparable, PictureError, TvmscopeError, UsageError, one_line
from tvmscope.images.match import match
from tvmscope.messages import Text, msg
from tvmscope.profiling.kernels import profile_row
from tvmscope.progress import Progress
from tvmscope.stages.artifact import read_checked, with_inputs
from tvmscope.stages.device import on_device
from tvmscope.stages.measure_rows import measure_rows, own_outputs
from tvmscope.stages.options import Options
from tvmscope.workflow import pictures

SCATTER_FIX = "fast-scatter"
_SCATTERS = re.compile(r"scatter|index_put|/copy(_\d+)?$", re.IGNORECASE)
"""Operators that the fix applies to, by their names in ONNX and in exported PyTorch programs."""


@on_device
def compare_artifacts(before: Path, after: Path, options: Options, progress: Progress) -> Changes:
    """Return the changes by the second; it is verified against the outputs of the first."""
    found = [read_checked(path, options) for path in (before, after)]
    if found[0].model_digest != found[1].model_digest or found[0].inputs != found[1].inputs:
        raise Incomparable(
            msg(
                "{before} and {after} are artifacts of different models or shapes",
                before=before,
                after=after,
            )
        )
    sightings: tuple[Sighting, ...] = ()
    with TemporaryDirectory(prefix="tvmscope-") as scratch:
        if options.pictures is not None:
            sightings, inputs = _look(found, options, Path(scratch), progress)
            options = replace(options, load=replace(options.load, inputs_file=inputs))
        with with_inputs(found, options) as (folder, entries):
            expected = own_outputs(entries[0], options, str(before), folder / "outputs.npz")
            measured = measure_rows(
                entries, options, expected, progress, compare=lambda results: ()
            )
            old, new = measured.results
            wrong = new.status == "wrong"
            rows = () if wrong else (_row(old, new),)
            made = _profiled(entries, progress, options) if options.profile else Changes(rows=())
    return replace(
        made,
        rows=rows,
        sightings=sightings,
        warnings=(*made.warnings, *_scatter_warning(found)),
        problem=_problem(new.reason if wrong else None, sightings),
    )


def _row(old: Result, new: Result) -> RowChange:
    found = compare(new, old, across=True)
    assert old.measurement is not None  # `compare` has checked it
    assert new.measurement is not None
    labels = dict.fromkeys((old.key.name, new.key.name))
    return RowChange(
        label=" → ".join(labels),
        target=old.task.target,
        before_s=stats.median_s(old.measurement),
        after_s=stats.median_s(new.measurement),
        speedup=found.speedup,
        ci95=found.ci95,
        verdict=found.verdict,
        through=None,
        spreads=(stats.moments(old.measurement), stats.moments(new.measurement)),
    )


def _profiled(entries: Sequence[Entry], progress: Progress, options: Options) -> Changes:
    """Compare the kernels of both; if one cannot be profiled, return a warning."""
    if any(entry.task.variant.graph for entry in entries):  # a graph runs its kernels as one
        return Changes(rows=(), warnings=(msg("kernels of CUDA graphs are not compared"),))
    progress.stage(msg("profile"), msg("kernel by kernel"))
    try:
        before, after = (
            profile_row(e.key, e.load, e.request, e.env, timeout_s=options.measure.timeout_s)
            for e in entries
        )
    except TvmscopeError as e:
        text = msg("kernels are not compared: {reason}", reason=one_line(e))
        return Changes(rows=(), warnings=(text,))
    return kernel_changes(before, after)


def _look(
    found: Sequence[Artifact], options: Options, scratch: Path, progress: Progress
) -> tuple[tuple[Sighting, ...], str]:
    """Return both results for each image, and the input file of the first readable one."""
    asked = options.pictures
    assert asked is not None  # the caller has checked it
    if options.load.inputs_file is not None:
        raise UsageError(msg("give --image or --inputs, not both"))
    known = found[0].vision or found[1].vision
    like = LIKENESS if not any(a.precision.is_half for a in found) else HALF_LIKENESS
    sides = []
    for name, artifact in zip(("before", "after"), found, strict=True):
        vision = pictures.vision_for(replace(artifact, vision=known), asked)
        (scratch / name).mkdir()
        sides.append(pictures.ask(artifact, vision, options, scratch / name, progress))
    sightings = tuple(
        match(old, new, like, asked.score_threshold)
        for old, new in zip(sides[0].answers, sides[1].answers, strict=True)
    )
    if sides[0].inputs is None:
        raise PictureError(sides[0].answers[0].failure or msg("no image could be read"))
    return sightings, sides[0].inputs


def _scatter_warning(found: Sequence[Artifact]) -> tuple[Text, ...]:
    """Warn if both artifacts have the fix: the comparison would show nothing about it."""
    for artifact in found:
        names = [name for call in artifact.kernels for name in (call.kernel, *call.source_ops)]
        if SCATTER_FIX not in artifact.pass_times_s or not any(map(_SCATTERS.search, names)):
            return ()
    text = msg("both artifacts have the fix for scatters; compile one with --no-fast-scatter")
    return (text,)


def _problem(wrong: Text | None, sightings: Sequence[Sighting]) -> Text | None:
    if wrong is not None:
        return msg("the second artifact computes something else: {wrong}", wrong=wrong)
    changed = [Path(s.picture).name for s in sightings if not s.same and s.failure is None]
    return msg("the answers differ: {changed}", changed=changed) if changed else None
