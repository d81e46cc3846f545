"""The common manifest of built-in darknet models whose weights the user provides."""

from __future__ import annotations

from collections.abc import Callable

from tvmscope.core.options import LoadOptions
from tvmscope.messages import Text, msg
from tvmscope.models.api import BuiltIn, TorchModel, require
from tvmscope.models.darknet.cfg import parse_parts


def built_in(name: str, summary: Text, cfg: Callable[[], str]) -> BuiltIn:
    """Make a built-in from the text of its .cfg; `name:file.weights` has real weights."""

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
