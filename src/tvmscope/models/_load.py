"""Obtains the torch module and example inputs of any source."""

from __future__ import annotations

from collections.abc import Callable

from tvmscope.core.options import LoadOptions
from tvmscope.errors import UsageError
from tvmscope.models import _darknet, _hugging_face, _torchvision_models, _user_code
from tvmscope.models._api import TorchModel
from tvmscope.models._torchvision import make_importable
from tvmscope.models.catalog import built_ins
from tvmscope.models.resolve import Source

_LOADERS: dict[str, Callable[[Source, LoadOptions], TorchModel]] = {
    "builtin": lambda source, options: _load_built_in(source, options),
    "darknet": _darknet.load,
    "torchvision": lambda source, options: _torchvision_models.load(source.ref, options),
    "hf": _hugging_face.load,
    "pt2": _user_code.load_exported,
    "python": _user_code.load_python,
    "pickled": _user_code.load_pickled,
}


def _load_built_in(source: Source, options: LoadOptions) -> TorchModel:
    manifest = built_ins()[source.ref]
    if source.attribute and manifest.load_form:
        return manifest.load_form(options, source.attribute)
    return manifest.load(options)


def load_torch(source: Source, options: LoadOptions) -> TorchModel:
    """The source's module in eval mode on the CPU; a seed gives the same weights in any process.

    Python files and pickles are executed.
    """
    make_importable()  # the user's code may import torchvision or transformers
    _user_code.seed_everything(options.seed)
    loaded = _LOADERS[source.kind](source, options)
    if source.kind != "pt2":  # an exported program has no training mode, and refuses eval()
        loaded.module.eval().cpu()  # the reference runs on the CPU, wherever user code put it
    if not loaded.args and not loaded.kwargs:
        raise UsageError(f"'{source.text}' has no inputs: there is nothing to measure")
    return loaded
