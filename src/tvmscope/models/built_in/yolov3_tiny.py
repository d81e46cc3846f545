"""The built-in model yolov3_tiny: the published layers; weights from a file, or random."""

from __future__ import annotations

from tvmscope.messages import msg
from tvmscope.models.built_in._darknet_model import built_in
from tvmscope.models.darknet.yolov3_layers import yolov3_tiny

MODEL = built_in(
    "yolov3_tiny",
    msg("Object detection, 8.9 M parameters, 1x3x416x416, boxes decoded in the graph"),
    yolov3_tiny,
)
