"""Two-stage detectors are exported with fixed sizes, compiled, and give torchvision's results."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tvmscope.benchmark.verify import mismatch
from tvmscope.compiler import in_memory
from tvmscope.compiler.frontends.torch import importer
from tvmscope.core.options import CompileOptions
from tvmscope.models import flat
from tvmscope.models.loaders import torchvision_rcnn
from tvmscope.models.loaders.torchvision_detection import Detector, detectors
from tvmscope.runtime.torchvision_operators import keypoints_of

SIDE, WIDTH, MOST = 64, 8, 40


class Pyramid(nn.Module):
    """Feature maps of two sizes."""

    out_channels = WIDTH

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, WIDTH, 5, stride=4, padding=2)
        self.second = nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        first = self.first(x).relu()
        return OrderedDict([("0", first), ("1", self.second(first).relu())])


def detector(kind: str) -> Detector:
    """A small model with torchvision's own stages; few boxes fill up its fixed sizes."""
    models: Any = detectors().models.detection
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads, KeypointRCNNPredictor
    from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
    from torchvision.ops import MultiScaleRoIAlign

    torch.manual_seed(0)
    heads: dict[str, Any] = {}
    if kind == "MaskRCNN":
        heads["mask_roi_pool"] = MultiScaleRoIAlign(["0", "1"], 6, 2)
        heads["mask_head"] = MaskRCNNHeads(WIDTH, (WIDTH,), 1)
        heads["mask_predictor"] = MaskRCNNPredictor(WIDTH, WIDTH, 3)
    if kind == "KeypointRCNN":
        heads["keypoint_roi_pool"] = MultiScaleRoIAlign(["0", "1"], 6, 2)
        heads["keypoint_head"] = KeypointRCNNHeads(WIDTH, (WIDTH,))
        heads["keypoint_predictor"] = KeypointRCNNPredictor(WIDTH, 5)
    pool = MultiScaleRoIAlign(["0", "1"], 3, 2)
    faster: Any = models.faster_rcnn
    model = getattr(models, kind)(
        Pyramid(),
        min_size=SIDE,
        max_size=SIDE,
        rpn_anchor_generator=AnchorGenerator(((12, 24), (24, 40)), ((0.5, 1.0),) * 2),
        rpn_pre_nms_top_n_test=20,
        rpn_post_nms_top_n_test=MOST,
        rpn_nms_thresh=0.1,
        box_roi_pool=pool,
        box_head=faster.TwoMLPHead(WIDTH * 9, 16),
        box_predictor=faster.FastRCNNPredictor(16, 3),
        box_score_thresh=0.0,
        box_detections_per_img=MOST,
        **heads,
    )
    return Detector(model.eval().requires_grad_(False))


@pytest.mark.parametrize(
    "kind",
    [
        "FasterRCNN",
        pytest.param("MaskRCNN", marks=pytest.mark.slow),
        pytest.param("KeypointRCNN", marks=pytest.mark.slow),
    ],
)
def test_a_two_stage_detector_compiles_and_verifies(kind: str) -> None:
    module, images = detector(kind), torch.rand(1, 3, SIDE, SIDE)
    found: list[int] = []
    proposer = module.model.get_submodule("rpn")
    proposer.register_forward_hook(lambda _m, _i, out: found.append(len(out[0][0])))
    wanted = flat.flatten(module(images))
    call = flat.flat_outputs(flat.flat_call(module, (images,), {}))
    program = torch.export.export(call.module, (images,), strict=False)
    assert 2 < found[0] < found[1] == MOST  # filled up
    imported = importer.translate(importer.decomposed(program), kind, fallback=True)
    inside = {op for part, _ in imported.fallbacks for op in part.operators}
    assert not [op for op in inside if "conv" in op or "linear" in op]
    outputs = in_memory.compile_here(imported, CompileOptions())([images.numpy()])
    assert 2 < len(outputs[0]) <= MOST
    for ours, (name, theirs) in zip(outputs, wanted.items(), strict=True):
        assert mismatch(ours, theirs.numpy(), 1e-4) is None, name


def test_boxes_are_pooled_as_torchvision_does() -> None:
    """Boxes on every level and image, at the edges, and empty ones."""
    models = detectors()
    torch.manual_seed(1)
    features = OrderedDict((str(i), torch.randn(2, 3, 32 >> i, 40 >> i)) for i in range(3))
    corners = torch.rand(2, 50, 2) * 140 - 20
    boxes = list(torch.cat((corners, corners + torch.rand(2, 50, 2) ** 3 * 150), 2))
    boxes = [models.ops.clip_boxes_to_image(each, (128, 160)) for each in boxes]
    boxes[0][:3] = 0
    pool = models.ops.MultiScaleRoIAlign(["0", "1", "2"], (3, 4), 2, canonical_scale=60)
    wanted = pool(features, boxes, [(128, 160)] * 2)
    assert len(pool.map_levels(boxes).unique()) == 3
    with torchvision_rcnn.fixed_sizes():
        found = pool(features, boxes, [(128, 160)] * 2)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_masks_are_pasted_as_torchvision_does() -> None:
    torchvision = detectors()
    from torchvision.models.detection import roi_heads, transform

    torch.manual_seed(2)
    corners = torch.rand(40, 2) * 60 - 15
    boxes = torch.cat((corners, corners + torch.rand(40, 2) ** 2 * 70), 1)
    boxes = torchvision.ops.clip_boxes_to_image(boxes, (48, 60))
    masks = torch.rand(40, 1, 7, 7)
    wanted = roi_heads.paste_masks_in_image(masks, boxes, (48, 60))
    with torchvision_rcnn.fixed_sizes():
        found = transform.paste_masks_in_image(masks, boxes, (48, 60))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_keypoints_are_found_as_torchvision_does() -> None:
    detectors()
    from torchvision.models.detection.roi_heads import heatmaps_to_keypoints

    torch.manual_seed(3)
    corners = torch.rand(9, 2) * 50
    boxes = torch.cat((corners, corners + torch.rand(9, 2) ** 2 * 70), 1)
    boxes[0] = 0
    maps = torch.randn(9, 5, 8, 8)
    for ours, theirs in zip(
        keypoints_of(maps, boxes), heatmaps_to_keypoints(maps, boxes), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
