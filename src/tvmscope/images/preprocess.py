"""Converts an image to a model's input, and boxes on that input back to the image's pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tvmscope.core.model import TensorSpec
from tvmscope.core.vision import Layout, Preprocess
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.quantities import format_shape

if TYPE_CHECKING:
    from PIL.Image import Image

CHANNELS = (1, 3)


@dataclass(frozen=True)
class Placement:
    """The image's position on the input: input = image * scale + shift, in x and y."""

    scale: tuple[float, float]
    shift: tuple[float, float]
    width: int
    height: int
    """The image's own size, to which boxes are clipped."""

    def to_picture(self, corners: np.ndarray) -> np.ndarray:
        """Convert corners (N x 4, input pixels) to the image's pixels, clipped at its edges."""
        scale, shift = np.tile(self.scale, 2), np.tile(self.shift, 2)
        edges = np.array([self.width, self.height] * 2, np.float64)
        return np.asarray(np.clip((corners - shift) / scale, 0.0, edges))


@dataclass(frozen=True)
class Frame:
    """The image-shaped input of a model: its layout, channels and size."""

    layout: Layout
    channels: int
    height: int
    width: int


def frame_of(spec: TensorSpec, layout: Layout | None = None) -> Frame:
    """Read the input's shape; the position of 3 (or 1) channels determines the layout."""
    shape = spec.shape
    if len(shape) == 4 and shape[0] == 1:
        if shape[1] in CHANNELS and layout != "NHWC":
            return Frame("NCHW", *shape[1:])
        if shape[3] in CHANNELS and layout != "NCHW":
            return Frame("NHWC", shape[3], shape[1], shape[2])
    wanted = msg(" as {layout}", layout=layout) if layout else ""
    hint = msg("; compile with --batch-size 1") if len(shape) == 4 and shape[0] != 1 else ""
    raise UsageError(
        msg(
            "input '{name}' ({shape}) does not take one image{wanted}{hint}",
            name=spec.name,
            shape=format_shape(shape),
            wanted=wanted,
            hint=hint,
        )
    )


def recognise(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str | None:
    """Return the preset of a model zoo's classifier, by its shapes; None if they do not show it.

    One float input for an image, and one output of ImageNet's 1000 classes: exports from PyTorch
    have channels first and its normalisation, those from TensorFlow channels last, or a class for
    the background, and values from -1 to 1.
    """
    if len(inputs) != 1 or len(outputs) != 1 or not inputs[0].dtype.startswith("float"):
        return None
    classes = [d for d in outputs[0].shape if d > 1]
    try:
        frame = frame_of(inputs[0])
    except UsageError:
        return None
    if frame.channels != 3 or classes not in ([1000], [1001]):
        return None
    return "imagenet" if frame.layout == "NCHW" and classes == [1000] else "inception"


def preprocess(image: Image, spec: TensorSpec, how: Preprocess) -> tuple[np.ndarray, Placement]:
    """Return the input array for an RGB image, and the image's position on it."""
    frame = frame_of(spec, how.layout)
    fitted, placement = _fit(image, (frame.width, frame.height), how)
    pixels = np.asarray(fitted.convert("L") if frame.channels == 1 else fitted)
    pixels = pixels.reshape(frame.height, frame.width, frame.channels)
    if pixels.dtype != spec.dtype or how != Preprocess(fit=how.fit):
        pixels = _normalise(pixels, how).astype(spec.dtype)
    if frame.layout == "NCHW":
        pixels = pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(pixels[None]), placement


def _normalise(pixels: np.ndarray, how: Preprocess) -> np.ndarray:
    values = pixels.astype(np.float32)
    if how.scale != 1.0:
        values *= np.float32(how.scale)
    for name, given in (("mean", how.mean), ("std", how.std)):
        if given and len(given) not in (1, pixels.shape[-1]):
            raise UsageError(
                msg(
                    "--{name} has {count} values, the input {channels} channels",
                    name=name,
                    count=len(given),
                    channels=pixels.shape[-1],
                )
            )
    if how.mean:
        values -= np.asarray(how.mean, np.float32)
    if how.std:
        values /= np.asarray(how.std, np.float32)
    return values


def _fit(image: Image, size: tuple[int, int], how: Preprocess) -> tuple[Image, Placement]:
    from PIL import Image
    from PIL.Image import Resampling

    filter_ = Resampling[how.filter.upper()]
    (width, height), (wide, high) = image.size, size
    if how.fit == "crop":
        return _crop(image, size, how.crop, filter_)
    if how.fit == "stretch":
        scale = (wide / width, high / height)
        return image.resize(size, filter_), Placement(scale, (0.0, 0.0), width, height)
    ratio = min(wide / width, high / height)
    inner = (max(1, round(width * ratio)), max(1, round(height * ratio)))
    shift = ((wide - inner[0]) // 2, (high - inner[1]) // 2)
    canvas = Image.new("RGB", size, (how.fill,) * 3)
    canvas.paste(image.resize(inner, filter_), shift)
    scale = (inner[0] / width, inner[1] / height)
    return canvas, Placement(scale, (float(shift[0]), float(shift[1])), width, height)


def _crop(
    image: Image, size: tuple[int, int], share: float, filter_: int
) -> tuple[Image, Placement]:
    """Return the middle of the image in the input's own proportions."""
    (width, height), (wide, high) = image.size, size
    ratio = share * min(width / wide, height / high)
    cut = (max(1, round(wide * ratio)), max(1, round(high * ratio)))
    left, top = (width - cut[0]) // 2, (height - cut[1]) // 2
    middle = image.crop((left, top, left + cut[0], top + cut[1]))
    scale = (wide / cut[0], high / cut[1])
    shift = (-left * scale[0], -top * scale[1])
    return middle.resize(size, filter_), Placement(scale, shift, width, height)
