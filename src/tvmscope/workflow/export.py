"""Writes a model as ONNX: the file with which ONNX Runtime and OpenVINO are measured."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tvmscope.core.prepared import outside_weights
from tvmscope.errors import ImportModelError, UsageError
from tvmscope.messages import msg
from tvmscope.models.folder import ONNX_ERROR
from tvmscope.progress import Progress, Silent
from tvmscope.stages.load import loaded
from tvmscope.stages.options import Options


def export_onnx(
    model: Any, output: Path, options: Options, progress: Progress | None = None
) -> Path:
    """The model with its weights and bound shapes in one file; over 2 GiB, weights lie beside."""
    progress = progress or Silent()
    if output.suffix != ".onnx" or output.is_dir():
        raise UsageError(msg("{output}: give a file that ends in .onnx", output=output))
    if output.exists() and not options.force:
        raise UsageError(msg("{file} exists; will not overwrite without --force", file=output))
    with loaded(model, options, progress) as ready:
        found, error = ready.folder / "model.onnx", ready.folder / ONNX_ERROR
        if not found.is_file():
            why = error.read_text(encoding="utf-8").strip() if error.is_file() else msg("no export")
            raise ImportModelError(
                msg("{name} cannot be written as ONNX: {why}", name=ready.model.name, why=why)
            )
        output.parent.mkdir(parents=True, exist_ok=True)
        for weights in ready.folder.glob(outside_weights.FILES):
            shutil.copyfile(weights, output.parent / weights.name)
        partial = output.with_name(output.name + ".part")
        shutil.copyfile(found, partial)
        partial.replace(output)
    return output
