"""The built-in model mobilenet_v2, from torchvision."""

from __future__ import annotations

from tvmscope.messages import msg
from tvmscope.models.built_in._torchvision_model import built_in

MODEL = built_in(
    "mobilenet_v2",
    msg("Image classification with depthwise convolutions, 3.5 M parameters, 1x3x224x224"),
)
