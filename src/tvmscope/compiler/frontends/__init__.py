"""One file per model format: from a prepared folder to a Relax module with named sources."""

from __future__ import annotations

from tvmscope.compiler.sources import Imported
from tvmscope.core.model import Prepared


def import_model(prepared: Prepared) -> Imported:
    """Translate the prepared model by the frontend of its format."""
    if prepared.model.format == "onnx":
        from tvmscope.compiler.frontends.onnx import import_onnx

        return import_onnx(prepared)
    from tvmscope.compiler.frontends.torch import import_torch

    return import_torch(prepared)
