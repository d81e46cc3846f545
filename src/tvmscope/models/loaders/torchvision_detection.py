"""torchvision's detection models as modules of one image batch that can be exported whole.

Which boxes remain is known at run time only: they are selected in PyTorch. What a two-stage model
computes for the selected boxes is compiled (`torchvision_rcnn`).
"""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from tvmscope.messages import Text, msg
from tvmscope.models.loaders.torchvision_import import import_torchvision
from tvmscope.models.loaders.torchvision_rcnn import fixed_sizes

SIDE = 320
"""Of the example image; most models resize it."""
_ALL_SCORES = {
    "rcnn": {
        "box_score_thresh": 0.0,
        "rpn_pre_nms_top_n_test": 100,
        "rpn_post_nms_top_n_test": 20,
    },
    "": {"score_thresh": 0.0, "topk_candidates": 50},
}
"""Random weights score nothing highly: no box would remain to verify."""


class Detector(nn.Module):
    """Takes a batch of images, gives each one's boxes, labels and scores."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        images = list(x.unbind(0))
        if not torch.compiler.is_exporting():
            return self.model(images)
        with fixed_sizes():
            return self.model(images)


def detectors() -> ModuleType:
    """torchvision, with detectors that run and export also without its compiled operators."""
    torchvision = import_torchvision()
    boxes = torchvision.ops.boxes
    if not torchvision.extension._has_ops():  # kernels in Python stand in for the missing ones
        boxes._assert_has_ops = lambda: None
        pooling: Any = importlib.import_module("torchvision.ops.roi_align")
        pooling._roi_align = inspect.unwrap(pooling._roi_align)  # it asks for a C++ compiler
    boxes.batched_nms = _batched_nms
    return torchvision


def stand_in_notes() -> tuple[Text, ...]:
    """What must be known of times where torchvision's operators have stand-ins."""
    if import_torchvision().extension._has_ops():
        return ()
    return (
        msg(
            "torchvision's compiled operators do not load: nms runs as a Python kernel in every "
            "row, roi_align in those of PyTorch, whose times say nothing about torchvision's speed"
        ),
    )


def build(name: str, *, random: bool) -> Detector:
    """A model by torchvision's name, its weights not loaded yet."""
    torchvision = detectors()
    settings = _ALL_SCORES["rcnn" if "rcnn" in name else ""] if random else {}
    built: nn.Module = torchvision.models.get_model(
        name, weights=None, weights_backbone=None, **settings
    )
    return Detector(built.eval())


def _batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """Boxes of different classes are moved apart, so that none suppresses another.

    torchvision's own asks how many boxes there are, which no export can answer.
    """
    largest = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max()
    moved = boxes + (idxs.to(boxes) * (largest + 1))[:, None]
    kept: Tensor = torch.ops.torchvision.nms(moved, scores, iou_threshold)
    return kept
