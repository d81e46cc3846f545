"""Loads torchvision's models, with their weights if those are available."""

from __future__ import annotations

import difflib
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from tvmscope.core.options import LoadOptions
from tvmscope.core.vision import Preprocess, Vision
from tvmscope.errors import UsageError, one_line
from tvmscope.messages import Text, did_you_mean, msg
from tvmscope.models.api import TorchModel, random_note
from tvmscope.models.download import TIMEOUT_S, reachable
from tvmscope.models.loaders import torchvision_detection
from tvmscope.models.loaders.random_weights import make_alive
from tvmscope.models.loaders.torchvision_import import import_torchvision

_FRAMES = 16  # the clip length of torchvision's video models


def load(name: str, options: LoadOptions) -> TorchModel:
    """Load a model by torchvision's name; with random weights if its own cannot be downloaded."""
    models: Any = import_torchvision().models
    names = models.list_models()
    if name not in names:
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        raise UsageError(
            msg("torchvision has no model '{name}'{hint}", name=name, hint=did_you_mean(close))
        )
    family = models.get_model_builder(name).__module__.split(".")[2]
    if family == "optical_flow":
        raise UsageError(
            msg(
                "torchvision:{name} takes more than one image tensor; write a function that "
                "returns (module, inputs) and give file.py:function",
                name=name,
            )
        )
    weights = models.get_model_weights(name).DEFAULT
    torch.manual_seed(options.seed)
    if family == "detection":
        return _load_detector(name, weights, options)
    module = models.get_model(name, weights=None, **_settings(name, family, weights)).eval()
    example = torch.randn(
        _shape(weights, family), generator=torch.Generator().manual_seed(options.seed)
    )
    vision = _vision(weights) if family not in ("video", "segmentation") else None
    reason = _load_weights(module, weights, options)
    if reason is None:
        return TorchModel(module=module, args=(example,), weights="pretrained", vision=vision)
    make_alive(module, example, seed=options.seed)
    note = random_note(reason)
    return TorchModel(
        module=module, args=(example,), weights="random", notes=(note,), vision=vision
    )


def _load_detector(name: str, weights: Any, options: LoadOptions) -> TorchModel:
    shape = (1, 3, torchvision_detection.SIDE, torchvision_detection.SIDE)
    example = torch.rand(shape, generator=torch.Generator().manual_seed(options.seed))
    module = torchvision_detection.build(name, random=False)
    reason = _load_weights(module.model, weights, options)
    notes = torchvision_detection.stand_in_notes()
    if reason is None:
        return TorchModel(module=module, args=(example,), weights="pretrained", notes=notes)
    torch.manual_seed(options.seed)
    module = torchvision_detection.build(name, random=True)
    make_alive(module, example, seed=options.seed)
    note = msg(
        "seeded random weights ({reason}), no threshold of scores, and fewer boxes than the "
        "published model keeps: neither times nor predictions are those of the published model",
        reason=reason,
    )
    return TorchModel(module=module, args=(example,), weights="random", notes=(note, *notes))


def _vision(weights: Any) -> Vision | None:
    """Return how the published weights were evaluated: resize the shorter side, crop the centre."""
    how = weights.transforms()
    if not hasattr(how, "resize_size"):
        return None
    preprocess = Preprocess(
        fit="crop",
        crop=how.crop_size[0] / how.resize_size[0],
        filter=how.interpolation.value,
        scale=1 / 255,
        mean=tuple(map(float, how.mean)),
        std=tuple(map(float, how.std)),
    )
    return Vision(task="classify", preprocess=preprocess)


def _settings(name: str, family: str, weights: Any) -> dict[str, Any]:
    if family == "vision_transformer":  # its positions are those of the published weights' images
        return {"image_size": _shape(weights, family)[-1]}
    if family == "segmentation":
        return {"weights_backbone": None}  # otherwise it downloads those of its backbone
    # these two warn that their default initialisation is slow
    return {"init_weights": True} if name in ("googlenet", "inception_v3") else {}


def _shape(weights: Any, family: str) -> tuple[int, ...]:
    crop = getattr(weights.transforms(), "crop_size", None) or [224]
    sides = tuple(crop) * 2 if len(crop) == 1 else tuple(crop)
    return (1, 3, _FRAMES, *sides) if family == "video" else (1, 3, *sides)


def _load_weights(module: torch.nn.Module, weights: Any, options: LoadOptions) -> Text | None:
    """Load the published weights; otherwise return the reason."""
    cached = Path(torch.hub.get_dir(), "checkpoints", Path(urlsplit(weights.url).path).name)
    if not cached.exists():
        if options.offline:
            return msg("downloads are off")
        if not reachable(weights.url):
            return msg("the download server was not reached")
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT_S)  # torch.hub downloads without a timeout
    try:
        module.load_state_dict(weights.get_state_dict(progress=False, check_hash=True))
    except (OSError, RuntimeError) as e:  # RuntimeError: the hash, or keys that do not fit
        return f"{cached.name}: {one_line(e)}"
    finally:
        socket.setdefaulttimeout(before)
    return None
