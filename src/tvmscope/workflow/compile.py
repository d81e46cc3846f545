"""Compile a model into an artifact folder, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvmscope.backends import all_backends
from tvmscope.compiler.artifact import META
from tvmscope.core.artifact import Artifact
from tvmscope.core.progress import Progress, Silent
from tvmscope.core.task import Variant
from tvmscope.errors import UsageError
from tvmscope.workflow import places, stages
from tvmscope.workflow.options import Options


def compile_model(
    model: Any, output: Path, options: Options, progress: Progress | None = None
) -> Artifact:
    """One target, one precision, one pipeline; cross-compiling needs no device."""
    progress = progress or Silent()
    if len(options.targets) != 1 or len(options.precisions) != 1:
        raise UsageError("compile takes one target and one precision; run it once for each")
    places.claim(output, force=options.force, marker=META)
    (target,) = stages.resolve_targets(options)
    progress.stage("load", str(model) if isinstance(model, str) else type(model).__name__)
    with stages.prepared(model, options) as ready:
        for note in ready.model.notes:
            progress.note(note)
        backends, _ = all_backends()
        row = stages.Row(
            backend=backends["tvmscope"],
            target=target,
            variant=Variant(
                backend="tvmscope",
                precision=options.precisions[0],
                pipeline=options.compile.pipeline,
                graph=options.compile.graph,
            ),
            unavailable=None,
        )
        progress.stage("compile", f"{ready.model.name} for {target.label}")
        return stages.build_artifact(
            ready, row, options, output, pipeline=options.compile.pipeline
        )
