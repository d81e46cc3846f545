"""Makes `import torchvision` work where its compiled operators cannot be loaded.

A CUDA-built torchvision beside a CPU build of torch fails at import because it registers meta
kernels for operators that its library would have declared. The missing schemas are declared
instead, and `nms` gets a kernel in PyTorch, as detection models use it. `transformers` imports
torchvision on its own: call `make_importable` before it, and before any user code.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tvmscope.errors import BackendUnavailable, one_line
from tvmscope.messages import msg

if TYPE_CHECKING:
    from torch import Tensor

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
    library.impl("nms", _nms, "CPU")
    return library


def _nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The boxes that no better one overlaps by more than the threshold, best first."""
    import torch

    areas = (dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1])
    order, kept = torch.argsort(scores, descending=True, stable=True), list[int]()
    while len(order):
        best, others = order[0], order[1:]
        kept.append(int(best))
        low = torch.maximum(dets[best, :2], dets[others, :2])
        high = torch.minimum(dets[best, 2:], dets[others, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        overlap = shared / (areas[best] + areas[others] - shared)
        order = others[~(overlap.double() > iou_threshold)]  # as the compiled one compares
    return torch.tensor(kept, dtype=torch.int64)


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
