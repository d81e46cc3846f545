"""Runs an artifact alone, on its own inputs or given ones, timed by the same rules as all."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from tvmscope.core.measurement import ITSELF
from tvmscope.core.session import Session
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.progress import Progress, Silent
from tvmscope.stages.artifact import read_checked, session_of, with_inputs
from tvmscope.stages.device import on_device
from tvmscope.stages.measure_rows import measure_rows, own_outputs
from tvmscope.stages.options import Options


@on_device
def run_artifact(
    path: Path,
    options: Options,
    *,
    save_outputs: Path | None = None,
    progress: Progress | None = None,
) -> Session:
    """Check, load and time an artifact; the reference of its accuracy is its own first run."""
    progress = progress or Silent()
    artifact = read_checked(path, options)
    if save_outputs is not None and save_outputs.exists() and not options.force:
        raise UsageError(
            msg(
                "{file} exists; will not overwrite without --force",
                file=save_outputs,
            )
        )
    with with_inputs([artifact], options) as (folder, (entry,)):
        progress.stage(msg("run"), str(path))
        expected = own_outputs(entry, options, ITSELF, folder / "outputs.npz")
        if save_outputs is not None:
            save_outputs.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(expected.outputs, save_outputs)
        measured = measure_rows([entry], options, expected, progress)
    return replace(session_of(artifact, options), results=measured.results)
