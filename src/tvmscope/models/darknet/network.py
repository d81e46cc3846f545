"""Darknet networks as torch modules: layers from a .cfg, weights from a .weights file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tvmscope.core.options import LoadOptions
from tvmscope.core.vision import Preprocess, Vision
from tvmscope.errors import ImportModelError
from tvmscope.messages import Text, msg
from tvmscope.models.api import TorchModel, random_note
from tvmscope.models.darknet import cfg
from tvmscope.models.darknet.cfg import Parts, Section
from tvmscope.models.darknet.yolo_layer import Yolo
from tvmscope.models.loaders.random_weights import make_alive
from tvmscope.models.resolve import Source

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "linear": nn.Identity,
    "leaky": lambda: nn.LeakyReLU(0.1),
    "mish": nn.Mish,
    "relu": nn.ReLU,
    "logistic": nn.Sigmoid,
    "swish": nn.SiLU,
}
_IGNORED = {"dropout"}  # no effect in a trained network


class Convolution(nn.Module):
    """A convolution with its batch norm, if it has one, and its activation."""

    def __init__(self, layer: Section, channels: int) -> None:
        super().__init__()
        size = layer.whole("size", 1)
        normed = bool(layer.whole("batch_normalize", 0))
        self.filters = layer.whole("filters")
        padding = size // 2 if layer.whole("pad", 0) else layer.whole("padding", 0)
        self.conv = nn.Conv2d(
            channels,
            self.filters,
            size,
            layer.whole("stride", 1),
            padding,
            groups=layer.whole("groups", 1),
            bias=not normed,
        )
        self.norm = nn.BatchNorm2d(self.filters) if normed else None
        name = layer.values.get("activation", "logistic")
        if name not in _ACTIVATIONS:
            known = ", ".join(_ACTIVATIONS)
            raise layer.problem(
                msg("activation '{name}' is none of {known}", name=name, known=known)
            )
        self.activation = _ACTIVATIONS[name]()

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        result: Tensor = self.activation(x if self.norm is None else self.norm(x))
        return result


class MaxPool(nn.Module):
    """Darknet pads `padding`, or size - 1, in total, with the larger part right and below."""

    def __init__(self, layer: Section) -> None:
        super().__init__()
        self.stride = layer.whole("stride", 1)
        self.size = layer.whole("size", self.stride)
        self.padding = layer.whole("padding", self.size - 1)

    def forward(self, x: Tensor) -> Tensor:
        before = self.padding // 2
        ends: list[int] = []
        for length in (x.shape[3], x.shape[2]):
            outputs = (length + self.padding - self.size) // self.stride + 1
            after = max(0, (outputs - 1) * self.stride + self.size - length - before)
            ends += [before, after]
        if any(ends):
            x = functional.pad(x, ends, value=float("-inf"))
        return functional.max_pool2d(x, self.size, self.stride)


class Darknet(nn.Module):
    """The network; every layer's result is kept for the routes and shortcuts that refer to it."""

    def __init__(self, text: str, form: str = cfg.FORMS[0]) -> None:
        super().__init__()
        self.net, self.layers = cfg.parse(text)
        self.form = form
        self.size = (self.net.whole("height", 416), self.net.whole("width", 416))
        self.blocks = nn.ModuleList()
        self.sources: list[tuple[int, ...]] = []
        filters: list[int] = []
        for index, layer in enumerate(self.layers):
            before = filters[-1] if filters else self.net.whole("channels", 3)
            self.sources.append(_sources(layer, index))
            block, channels = self._block(layer, before, [filters[s] for s in self.sources[-1]])
            self.blocks.append(block)
            filters.append(channels)
        if not any(isinstance(block, Yolo) for block in self.blocks):
            raise ImportModelError(
                msg("the .cfg has no [yolo] layer: only detectors are supported")
            )

    def _block(self, layer: Section, before: int, inputs: list[int]) -> tuple[nn.Module, int]:
        match layer.name:
            case "convolutional":
                block = Convolution(layer, before)
                return block, block.filters
            case "maxpool":
                return MaxPool(layer), before
            case "upsample":
                return nn.Upsample(scale_factor=layer.whole("stride", 2)), before
            case "route":
                return nn.Identity(), sum(inputs) // layer.whole("groups", 1)
            case "shortcut":
                if layer.values.get("activation", "linear") not in _ACTIVATIONS:
                    raise layer.problem(
                        msg("activation '{name}' is unknown", name=layer.values["activation"])
                    )
                return _ACTIVATIONS[layer.values.get("activation", "linear")](), before
            case "yolo":
                return Yolo(layer, before, self.form), before
            case name if name in _IGNORED:
                return nn.Identity(), before
        raise layer.problem(msg("layers of this kind are not supported"))

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        kept: list[Tensor] = []
        heads: list[Tensor] = []
        size = (x.shape[2], x.shape[3])
        for layer, block, sources in zip(self.layers, self.blocks, self.sources, strict=True):
            if layer.name == "route":
                x = _route(layer, [kept[s] for s in sources])
            elif layer.name == "shortcut":
                x = block(x + kept[sources[0]])
            elif layer.name == "yolo":
                heads.append(block(x, size))
            else:
                x = block(x)
            kept.append(x)
        return tuple(heads) if self.form == "raw" else torch.cat(heads, 1)

    def load_weights(self, path: Path) -> None:
        """Fill in darknet's float32 values, layer by layer; raise if the number does not fit."""
        values = torch.from_numpy(_read_weights(path))
        targets = [t for block in self.blocks for t in _weights_of(block)]
        wanted = sum(t.numel() for t in targets)
        if wanted != len(values):
            raise ImportModelError(
                msg(
                    "'{path}' holds {count:,} weights, the .cfg asks for {wanted:,}: they do not "
                    "belong together, or the file is truncated",
                    path=path,
                    count=len(values),
                    wanted=wanted,
                )
            )
        for target, part in zip(targets, values.split([t.numel() for t in targets]), strict=True):
            target.data.copy_(part.view_as(target))


def _sources(layer: Section, index: int) -> tuple[int, ...]:
    """Return the layers that this one reads, besides the previous; negative numbers count back."""
    key = {"route": "layers", "shortcut": "from"}.get(layer.name)
    if key is None:
        return ()
    found = tuple(s + index if s < 0 else s for s in layer.wholes(key))
    if not found or not all(0 <= s < index for s in found):
        raise layer.problem(
            msg("{key}={value} names no layer before it", key=key, value=layer.values.get(key, ""))
        )
    return found


def _route(layer: Section, inputs: list[Tensor]) -> Tensor:
    groups, group = layer.whole("groups", 1), layer.whole("group_id", 0)
    parts = [x if groups == 1 else x.chunk(groups, 1)[group] for x in inputs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _weights_of(block: nn.Module) -> list[Tensor]:
    """Return a block's tensors in the order of the file."""
    if not isinstance(block, Convolution):
        return []
    norm = block.norm
    if norm is None:
        found = [block.conv.bias, block.conv.weight]
    else:
        found = [norm.bias, norm.weight, norm.running_mean, norm.running_var, block.conv.weight]
    return [tensor for tensor in found if tensor is not None]


def _read_weights(path: Path) -> np.ndarray:
    """Return the values after the header: three version numbers and a count of 4 or 8 bytes."""
    try:
        data = path.read_bytes()
    except OSError as e:
        raise ImportModelError(
            msg("'{path}' cannot be read: {reason}", path=path, reason=str(e))
        ) from e
    if len(data) < 16:
        raise ImportModelError(msg("'{path}' is too short to be a darknet weights file", path=path))
    major, minor = np.frombuffer(data, "<i4", 2)
    start = 20 if major * 10 + minor >= 2 else 16
    return np.frombuffer(data[start : start + (len(data) - start) // 4 * 4], "<f4").copy()


def load(source: Source, options: LoadOptions) -> TorchModel:
    """Load `model.cfg`, with the named weights or those beside it; without any, random ones."""
    path = Path(source.ref)
    parts = cfg.parse_parts(source.attribute or "")
    beside = path.with_suffix(cfg.WEIGHTS_SUFFIX)
    if parts.weights is None and beside.is_file():
        parts = Parts(str(beside), parts.form)
    return build(cfg.read_text(path), parts, options)


def build(text: str, parts: Parts, options: LoadOptions, *, published: bool = False) -> TorchModel:
    """Return the module of a .cfg text in eval mode, with an example input and image settings."""
    torch.manual_seed(options.seed)
    module = Darknet(text, parts.form).eval()
    shape = (1, module.net.whole("channels", 3), *module.size)
    example = torch.rand(shape, generator=torch.Generator().manual_seed(options.seed))
    notes: tuple[Text, ...] = ()
    if parts.weights is None:
        make_alive(module, example, seed=options.seed)
        notes = (random_note(msg("no .weights file was given")),)
    else:
        module.load_weights(Path(parts.weights))
    return TorchModel(
        module=module,
        args=(example,),
        weights="random" if notes else "pretrained" if published else "file",
        notes=notes,
        vision=Vision(
            task="detect",
            # darknet's Python tools stretch; with the image's proportions kept, the published
            # yolov4-tiny finds more: a cat at .63 instead of .37, three people instead of one
            preprocess=Preprocess(fit="letterbox", scale=1 / 255),
            head="darknet" if parts.form == "raw" else "yolov5",
            anchors=cfg.anchors(module.layers),
        ),
    )
