"""Exports torchvision's two-stage detectors (`GeneralizedRCNN`) with tensors of fixed sizes.

How many proposals and detections an image has is known at run time only, and layers that run on
them could not be compiled. While a model is exported they are filled up to their greatest number:
proposals with empty boxes, whose predictions torchvision itself drops as too small, detections
with a score below all others, by which the rows are taken out again at the end. Run eagerly, a
model is torchvision's own code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tvmscope.errors import ImportModelError
from tvmscope.messages import msg
from tvmscope.runtime.torchvision_operators import keypoints_of

_FILLED = -1.0
"""The score of a row that is no detection; scores are probabilities."""


@contextmanager
def fixed_sizes() -> Iterator[None]:
    """Replace what makes tensors of sizes known at run time, in every model of these classes."""
    from torchvision.models.detection import roi_heads, rpn, transform
    from torchvision.ops import poolers

    heads, proposer = roi_heads.RoIHeads, rpn.RegionProposalNetwork
    resizer = transform.GeneralizedRCNNTransform
    filter_proposals, select = proposer.filter_proposals, heads.postprocess_detections
    postprocess = resizer.postprocess

    def filtered(self: Any, *args: Any) -> Any:
        boxes, scores = filter_proposals(self, *args)
        return [_filled(b, self.post_nms_top_n(), 0.0) for b in boxes], scores

    def selected(self: Any, *args: Any) -> Any:
        found = select(self, *args)
        if not (self.has_mask() or self.has_keypoint()):
            return found
        return tuple(
            [_filled(each, self.detections_per_img, value) for each in column]
            for column, value in zip(found, (0.0, _FILLED, 0), strict=True)
        )

    def trimmed(self: Any, result: list[dict[str, Tensor]], *args: Any) -> Any:
        if not any({"masks", "keypoints"} & each.keys() for each in result):
            return postprocess(self, result, *args)  # nothing was filled up
        rows = [torch.where(each["scores"] > _FILLED)[0] for each in result]
        kept = [{k: v[row] for k, v in r.items()} for r, row in zip(result, rows, strict=True)]
        return postprocess(self, kept, *args)

    with ExitStack() as stack:
        for owner, name, new in (
            (proposer, "filter_proposals", filtered),
            (heads, "postprocess_detections", selected),
            (resizer, "postprocess", trimmed),
            (poolers, "_multiscale_roi_align", _pool),
            (roi_heads, "heatmaps_to_keypoints", keypoints_of),
            (transform, "paste_masks_in_image", _paste),
        ):
            stack.enter_context(patch.object(owner, name, new))
        yield


def _filled(rows: Tensor, count: int, value: float) -> Tensor:
    """At most `count` rows, and then rows of this value."""
    whole = rows.new_full((count, *rows.shape[1:]), value)
    return whole.index_put((torch.arange(rows.shape[0], device=rows.device),), rows)


def _pool(
    features: list[Tensor],
    boxes: list[Tensor],
    size: tuple[int, int],
    samples: int,
    scales: list[float],
    mapper: Any,
) -> Tensor:
    """`roi_align` of each box on its own level.

    All levels lie in one table with a row for each pixel; a box reads the rows of its level.
    """
    if samples <= 0:
        raise ImportModelError(
            msg("roi_align's number of samples depends on the box (sampling_ratio is not positive)")
        )
    table = torch.cat([f.permute(0, 2, 3, 1).flatten(1, 2) for f in features], 1)
    heights, widths = ([f.shape[axis] for f in features] for axis in (2, 3))
    pixels = [h * w for h, w in zip(heights, widths, strict=True)]
    starts = [sum(pixels[:level]) for level in range(len(pixels))]
    levels = mapper(boxes)

    def of_level(values: list[Any], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=levels.device)[levels][:, None]

    corners = torch.cat(boxes) * of_level(scales, table.dtype)
    images = [torch.full_like(b[:, 0], i, dtype=torch.int64) for i, b in enumerate(boxes)]
    first = torch.cat(images)[:, None] * sum(pixels) + of_level(starts, torch.int64)
    width = of_level(widths, torch.int64)
    rows = _samples(corners[:, 1:4:2], size[0], samples, of_level(heights, torch.int64))
    columns = _samples(corners[:, 0:4:2], size[1], samples, width)
    table, total = table.flatten(0, 1), None
    for y, wy in rows:
        for x, wx in columns:
            places = first[:, :, None] + y[:, :, None] * width[:, :, None] + x[:, None, :]
            part = table[places] * (wy[:, :, None] * wx[:, None, :])[..., None]
            total = part if total is None else total + part
    assert total is not None
    bins = total.reshape(-1, size[0], samples, size[1], samples, table.shape[1])
    return bins.mean((2, 4)).permute(0, 3, 1, 2)


def _samples(ends: Tensor, bins: int, samples: int, length: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The two pixels beside each point where an axis is sampled, with their weights."""
    start, extent = ends[:, :1], (ends[:, 1:] - ends[:, :1]).clamp(min=1.0)
    steps = torch.arange(bins * samples, dtype=ends.dtype, device=ends.device)
    points = start + (steps + 0.5)[None] * (extent / (bins * samples))
    inside = (points >= -1.0) & (points <= length)
    points = torch.minimum(points.clamp(min=0.0), (length - 1).to(points))
    low = points.floor().to(torch.int64)
    high = torch.minimum(low + 1, length - 1)
    share = points - low
    zero = torch.zeros_like(points)
    return [
        (low, torch.where(inside, 1.0 - share, zero)),
        (high, torch.where(inside, share, zero)),
    ]


def _paste(masks: Tensor, boxes: Tensor, shape: tuple[int, int], padding: int = 1) -> Tensor:
    """Masks in the pixels of the image: both axes are resampled by a matrix for each box."""
    from torchvision.models.detection.roi_heads import expand_boxes, expand_masks

    masks, scale = expand_masks(masks, padding)
    ends = expand_boxes(boxes, scale).to(torch.int64)
    rows = _resampling(ends[:, 1], ends[:, 3], shape[0], masks)
    columns = _resampling(ends[:, 0], ends[:, 2], shape[1], masks)
    return (rows @ masks[:, 0] @ columns.transpose(1, 2))[:, None]


def _resampling(first: Tensor, last: Tensor, length: int, masks: Tensor) -> Tensor:
    """Bilinear weights [boxes, pixels of an axis, pixels of a mask]; zero outside of the box."""
    side = masks.shape[-1]
    extent = (last - first + 1).clamp(min=1)[:, None]
    place = torch.arange(length, device=first.device)[None] - first[:, None]
    inside = (place >= 0) & (place < extent)
    points = ((place + 0.5) * (side / extent) - 0.5).clamp(min=0.0, max=side - 1.0)
    pixel = torch.arange(side, device=first.device)
    weights = (1.0 - (points[:, :, None] - pixel).abs()).clamp(min=0.0)
    return (weights * inside[:, :, None]).to(masks)
