"""The built-in model resnet50, from torchvision."""

from __future__ import annotations

from tvmscope.messages import msg
from tvmscope.models.built_in._torchvision_model import built_in

MODEL = built_in(
    "resnet50", msg("Image classification, residual network, 25.6 M parameters, 1x3x224x224")
)
