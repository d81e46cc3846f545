"""One room per model format: from a prepared folder to a Relax module with named sources.

The build, the tuning tasks and the bisection call `import_model`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tvmscope.core.model import Prepared

if TYPE_CHECKING:  # the room itself is imported without TVM
    from tvmscope.compiler.describe.sources import Imported


@lru_cache(maxsize=1)
def import_model(prepared: Prepared, fallback: bool = False) -> Imported:
    """Translate the prepared model with its format's frontend; the next variant reuses the result.

    With `fallback`, operators without a kernel run in the model's own framework.
    """
    if prepared.model.format == "onnx":
        from tvmscope.compiler.frontends.onnx.importer import import_onnx

        return import_onnx(prepared, fallback)
    from tvmscope.compiler.frontends.torch.importer import import_torch

    return import_torch(prepared, fallback)
