"""Makes `import torchvision` work where its compiled operators cannot be loaded.

A CUDA-built torchvision beside a CPU build of torch fails at import because it registers meta
kernels for operators that its library would have declared. The models need none of them, so the
missing schemas are declared instead. `transformers` imports torchvision on its own: call
`make_importable` before it, and before any user code.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tvmscope.errors import BackendUnavailable, one_line
from tvmscope.messages import msg

_SCHEMA = "{}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@cache
def make_importable() -> Any:
    """Declare torchvision's `nms` and `qnms` if its own library does not; safe to repeat.

    The returned library handle keeps the declarations alive (the cache holds it).
    """
    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or "nms" in dir(torch.ops.torchvision):
        return None
    for compiled in Path(spec.origin).parent.glob("_C.*"):
        try:
            torch.ops.load_library(str(compiled))
            return None
        except OSError:  # built for another torch: the case of this module
            continue
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(_SCHEMA.format(name))
    return library


def import_torchvision() -> ModuleType:
    """Return the torchvision package, with the shim in place."""
    make_importable()
    try:
        import torchvision
    except (ImportError, RuntimeError) as e:  # RuntimeError: an operator mismatch with torch
        raise BackendUnavailable(
            msg(
                "torchvision cannot be imported ({reason}); pip install 'tvmscope[torch]'",
                reason=one_line(e),
            )
        ) from e
    package: ModuleType = torchvision
    return package
