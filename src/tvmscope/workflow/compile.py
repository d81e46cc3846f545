"""Compiles a model into an artifact folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tvmscope.core.artifact import Artifact
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.core.tuning import origins
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.models.fingerprint import fingerprint
from tvmscope.progress import Progress, Silent
from tvmscope.runtime.artifact import META, read_kernels
from tvmscope.stages import places
from tvmscope.stages.builder import Builder, known_artifact, remember_source
from tvmscope.stages.device import on_device
from tvmscope.stages.load import loaded
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import with_export
from tvmscope.stages.targets import resolve_targets, threads_of
from tvmscope.tuning.job.tune import tune
from tvmscope.tuning.records.lookup import find_choices
from tvmscope.workflow.sizing.compile_sizes import compile_sizes


@on_device
def compile_model(
    model: Any, output: Path, options: Options, progress: Progress | None = None
) -> Artifact:
    """Compile for one target, precision and pipeline; cross-compiling needs no device."""
    progress = progress or Silent()
    check_one(options)
    places.claim(output, force=options.force, marker=META)
    if options.dynamic:
        return compile_sizes(model, output, options, progress)
    (target,) = resolve_targets(options)
    if options.tune_first:
        tune(model, replace(options, output=None), progress)
    threads = threads_of(options)
    tuned = find_choices(options.db, target, threads)
    for warning in tuned.warnings:
        progress.note(warning)
    config = replace(
        options.compile,
        precision=options.precisions[0],
        graph=bool(options.graph),
        choices=options.compile.choices or tuned.choices,
    )
    source = fingerprint(model, options.load) if isinstance(model, str) else None
    artifact = source and known_artifact(source, output, target, config, threads)
    if artifact:
        progress.note(msg("compiled before: copied from the cache"))
    else:
        artifact = _compiled(model, source, output, target, config, options, progress)
    if used := origins(k.tuned for k in read_kernels(output) if k.tuned):
        progress.note(msg("tuned kernels: {origins}", origins=used))
    return artifact


def _compiled(
    model: Any,
    source: str | None,
    output: Path,
    target: Target,
    config: CompileOptions,
    options: Options,
    progress: Progress,
) -> Artifact:
    threads = threads_of(options)
    with loaded(model, with_export(options, wanted=False), progress) as ready:
        progress.stage(
            msg("compile"), msg("{model} for {target}", model=ready.model.name, target=target.label)
        )
        with Builder(ready, threads, progress) as builder:
            artifact = builder.build(output, target, config)
        # weights that are random because a server was unreachable may be downloaded next time
        if source and (options.load.offline or ready.model.weights != "random"):
            remember_source(source, ready, target, config, threads)
    return artifact


def check_one(options: Options) -> None:
    """Refuse to compile for several targets or precisions at once."""
    if len(options.targets) != 1 or len(options.precisions) != 1:
        raise UsageError(msg("compile takes one target and one precision; run it once for each"))
