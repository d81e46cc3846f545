"""A model's image input and output: plain values that are stored as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

from tvmscope.core.model import Prepared
from tvmscope.messages import Text
from tvmscope.storage.codec import decode


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """How far two answers may differ and still count as equal."""

    least_iou: float = 0.99
    most_score: float = 0.005


LIKENESS = Likeness()
HALF_LIKENESS = Likeness(least_iou=0.9, most_score=0.05)
"""The limits for half precision, whose scores have three digits."""


@dataclass(frozen=True, kw_only=True)
class BoxPair:
    """A pair of overlapping boxes, one of each side, or a box that the other side lacks."""

    before: Box | None
    after: Box | None
    iou: float | None = None
    same: bool = False
    """Whether they agree within the limits; a lone box does if its score is near the threshold."""

    @property
    def score_change(self) -> float | None:
        """The later score minus the earlier one; None for a lone box."""
        if self.before is None or self.after is None:
            return None
        return self.after.score - self.before.score


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """The results of both artifacts for one image."""

    picture: str
    boxes: tuple[BoxPair, ...] = ()
    labels_before: tuple[Label, ...] = ()
    labels_after: tuple[Label, ...] = ()
    same: bool = True
    failure: Text | None = None
    """Why the image could not be processed."""


Fit = Literal["stretch", "letterbox", "crop"]
Layout = Literal["NCHW", "NHWC"]
PictureTask = Literal["classify", "detect"]
Head = Literal["yolov5", "yolov8", "darknet", "nms", "end2end"]


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """How RGB pixels become the input: fit to its size, then (x * scale - mean) / std.

    The input's height and width are those of the artifact, because compilation fixes the shapes.
    """

    fit: Fit = "stretch"
    crop: float = 1.0
    """For `crop`: the share of the shorter side that the central square keeps."""
    fill: int = 114
    """For `letterbox`: the grey of the bars."""
    filter: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    """The means of scaled values, one per channel; none means 0."""
    std: tuple[float, ...] = ()
    layout: Layout | None = None
    """The position of the channels; None if the input's shape determines it."""


PRESETS = {
    "imagenet": Preprocess(
        fit="crop", crop=0.875, scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    ),
    "inception": Preprocess(fit="crop", crop=0.875, scale=1 / 127.5, mean=(1.0,)),
    "unit": Preprocess(fit="crop", crop=0.875, scale=1 / 255),
    "raw": Preprocess(),
}
"""Preprocessing that many models were trained with: PyTorch's on ImageNet, -1 to 1 as in
TensorFlow, 0 to 1, and unchanged pixels."""


@dataclass(frozen=True)
class Anchors:
    """A darknet head: anchor boxes in input pixels, and how far a centre may leave its cell."""

    sizes: tuple[tuple[float, float], ...]
    scale_xy: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Vision:
    """Preprocessing, labels and decoding for a model that takes images; stored in the artifact's
    meta.json."""

    task: PictureTask | None = None
    preprocess: Preprocess = field(default_factory=Preprocess)
    labels: tuple[str, ...] = ()
    """Names that came with the model; if empty, the class count determines them."""
    head: Head | None = None
    anchors: tuple[Anchors, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Label:
    """A class with its score, 0 to 1."""

    index: int
    name: str
    score: float


@dataclass(frozen=True, kw_only=True)
class Box:
    """A found object; the corners are in pixels of the original image."""

    index: int
    name: str
    score: float
    corners: tuple[float, float, float, float]
    """Left, top, right, bottom."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A model's result for one image, or why there is none."""

    picture: str
    width: int | None = None
    height: int | None = None
    task: PictureTask | None = None
    labels: tuple[Label, ...] = ()
    boxes: tuple[Box, ...] = ()
    times_s: dict[str, float] = field(default_factory=dict)
    """Seconds of `decode`, `preprocess`, `inference` and `postprocess`."""
    failure: Text | None = None


def vision_of(prepared: Prepared) -> Vision | None:
    """Return the image settings of a prepared folder; None for models that take no images."""
    if not prepared.json_path.is_file():
        return None
    data = json.loads(prepared.json_path.read_text(encoding="utf-8")).get("vision")
    return None if data is None else decode(Vision, data)
