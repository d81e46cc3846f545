"""The common manifest of all built-in models from torchvision."""

from __future__ import annotations

from tvmscope.core.options import LoadOptions
from tvmscope.messages import Text, msg
from tvmscope.models.api import BuiltIn, TorchModel, require


def built_in(name: str, summary: Text) -> BuiltIn:
    """Make a built-in that torchvision provides under the same name."""

    def load(options: LoadOptions) -> TorchModel:
        require("torch")
        from tvmscope.models.loaders import torchvision_models

        return torchvision_models.load(name, options)

    return BuiltIn(
        name=name,
        summary=summary,
        weights=msg("torchvision (ImageNet), downloaded; seeded random without a network"),
        load=load,
        requires=("torch", "torchvision"),
    )
