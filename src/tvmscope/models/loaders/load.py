"""Loads the torch module and example inputs of any source."""

from __future__ import annotations

from collections.abc import Callable

from tvmscope.core.options import LoadOptions
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.models.api import TorchModel
from tvmscope.models.catalog import built_ins
from tvmscope.models.darknet import network
from tvmscope.models.loaders import hugging_face, torchvision_models, user_code
from tvmscope.models.resolve import Source
from tvmscope.runtime.torchvision_operators import make_importable

_LOADERS: dict[str, Callable[[Source, LoadOptions], TorchModel]] = {
    "builtin": lambda source, options: _load_built_in(source, options),
    "darknet": network.load,
    "torchvision": lambda source, options: torchvision_models.load(source.ref, options),
    "hf": hugging_face.load,
    "pt2": user_code.load_exported,
    "python": user_code.load_python,
    "pickled": user_code.load_pickled,
}


def _load_built_in(source: Source, options: LoadOptions) -> TorchModel:
    manifest = built_ins()[source.ref]
    if source.attribute and manifest.load_form:
        return manifest.load_form(options, source.attribute)
    return manifest.load(options)


def load_torch(source: Source, options: LoadOptions) -> TorchModel:
    """Load the source's module in eval mode on the CPU; a seed gives the same weights everywhere.

    Python files and pickles are executed.
    """
    make_importable()  # the user's code may import torchvision or transformers
    user_code.seed_everything(options.seed)
    loaded = _LOADERS[source.kind](source, options)
    if source.kind != "pt2":  # an exported program has no training mode, and refuses eval()
        loaded.module.eval().cpu()  # the reference runs on the CPU, wherever user code put it
    if not loaded.args and not loaded.kwargs:
        raise UsageError(
            msg("'{source}' has no inputs: there is nothing to measure", source=source.text)
        )
    return loaded
