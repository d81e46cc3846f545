"""The manifest that built-in darknet models share whose weights the user brings."""

from __future__ import annotations

from collections.abc import Callable

from tvmscope.core.options import LoadOptions
from tvmscope.messages import Text, msg
from tvmscope.models.api import BuiltIn, TorchModel, require
from tvmscope.models.darknet.cfg import parse_parts


def built_in(name: str, summary: Text, cfg: Callable[[], str]) -> BuiltIn:
    """A built-in by the text of its .cfg; `name:file.weights` has real weights."""

    def load(options: LoadOptions, form: str = "") -> TorchModel:
        require("torch")
        from tvmscope.models.darknet import network

        return network.build(cfg(), parse_parts(form), options)

    return BuiltIn(
        name=name,
        summary=summary,
        weights=msg("{name}:FILE.weights; seeded random without", name=name),
        load=load,
        load_form=load,
    )
