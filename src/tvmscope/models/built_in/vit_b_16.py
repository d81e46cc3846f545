"""The built-in model vit_b_16, from torchvision."""

from __future__ import annotations

from tvmscope.messages import msg
from tvmscope.models.built_in._torchvision_model import built_in

MODEL = built_in(
    "vit_b_16", msg("Image classification, vision transformer, 86.6 M parameters, 1x3x224x224")
)
