"""Declares the operators of torchvision's detectors, which programs in PyTorch may contain.

A CUDA-built torchvision beside a CPU build of torch fails at import because it registers meta
kernels for operators that its library would have declared. The missing schemas are declared
instead, and `nms` gets a kernel in PyTorch, as detection models use it. `transformers` imports
torchvision on its own: call `make_importable` before it, and before any user code. It is also
called before a program is read: without the operators in it, no program can be.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_NMS = "{}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_KEYPOINTS = "keypoints(Tensor maps, Tensor boxes) -> (Tensor, Tensor)"


@cache
def make_importable() -> tuple[Any, ...]:
    """Declare the operators that are not there; safe to repeat.

    The returned library handles keep the declarations alive (the cache holds them).
    """
    import torch

    own = torch.library.Library("tvmscope", "DEF")
    own.define(_KEYPOINTS)
    own.impl("keypoints", _keypoints, "CompositeExplicitAutograd")
    own.impl("keypoints", _keypoints_like, "Meta")
    return (own,) if _has_operators() else (own, _declared())


def _has_operators() -> bool:
    """Whether torchvision's library is loaded, or can be."""
    import torch

    if "nms" in dir(torch.ops.torchvision):
        return True
    spec = importlib.util.find_spec("torchvision")
    for compiled in Path(spec.origin).parent.glob("_C.*") if spec and spec.origin else ():
        try:
            torch.ops.load_library(str(compiled))
            return True
        except OSError:  # built for another torch: the case of this module
            continue
    return False


def _declared() -> Any:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(_NMS.format(name))
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


def keypoints_of(maps: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """What torchvision's `heatmaps_to_keypoints` gives, as one operator of known output sizes."""
    import torch

    points, scores = torch.ops.tvmscope.keypoints(maps, boxes)
    return points, scores


def _keypoints(maps: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Resize the map of each box to the box: a keypoint lies where its map is largest."""
    import torch
    from torch.nn.functional import interpolate

    points, scores = _keypoints_like(maps, boxes)
    for i, (x0, y0, x1, y1) in enumerate(boxes):
        extent = torch.stack((x1 - x0, y1 - y0)).clamp(min=1)
        width, height = (int(side) for side in extent.ceil())
        sized = interpolate(maps[i][:, None], size=(height, width), mode="bicubic").flatten(1)
        scores[i], place = sized.max(1)
        pixel = torch.stack((place % width, place // width), 1) + 0.5
        points[i, :, :2] = pixel * (extent / extent.ceil()) + torch.stack((x0, y0))
        points[i, :, 2] = 1
    return points, scores


def _keypoints_like(maps: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    return maps.new_empty(maps.shape[0], maps.shape[1], 3), maps.new_empty(maps.shape[:2])
