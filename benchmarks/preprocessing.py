"""How much the way to 416x416 decides what a detector says: yolov4-tiny in PyTorch, as Markdown.

The pictures are scikit-image's: coffee and chelsea (CC0) and NASA's astronaut (public domain).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import skimage.data
import torch
from PIL import Image
from torch.nn import functional

from tvmscope.core.model import TensorSpec
from tvmscope.core.options import LoadOptions
from tvmscope.core.vision import Box, Preprocess
from tvmscope.images import heads, image_files
from tvmscope.images.detect import detect
from tvmscope.images.labels import namer
from tvmscope.images.preprocess import preprocess
from tvmscope.models.built_in import yolov4_tiny

SIDE = 416
SPEC = TensorSpec("x", (1, 3, SIDE, SIDE), "float32")
SOUGHT = {
    "coffee.png": ("cup", "dining table"),
    "astronaut.png": ("person",),
    "chelsea.png": ("cat", "dog"),
}
LOW = 0.05
"""Below the usual threshold, so that the table shows by how much a score misses it."""
QUALITIES = (95, 75, 50, 25)


def read(name: str) -> Image.Image:
    """One of scikit-image's pictures."""
    return image_files.read(Path(skimage.data.__file__).parent / name)


def without_antialiasing(image: Image.Image, how: Preprocess) -> np.ndarray:
    """As many loaders do it: four neighbours, however much smaller the picture becomes."""
    width, height = image.size
    ratio = min(SIDE / width, SIDE / height)
    inner = (SIDE, SIDE)
    if how.fit == "letterbox":
        inner = (round(height * ratio), round(width * ratio))
    pixels = torch.from_numpy(np.asarray(image).transpose(2, 0, 1)[None].astype(np.float32))
    small = functional.interpolate(pixels, inner, mode="bilinear", antialias=False)
    canvas = np.full((1, 3, SIDE, SIDE), how.fill, np.float32)
    top, left = (SIDE - inner[0]) // 2, (SIDE - inner[1]) // 2
    canvas[:, :, top : top + inner[0], left : left + inner[1]] = small.numpy()
    return canvas / np.float32(255)


def ways(base: Preprocess) -> dict[str, Callable[[Image.Image], np.ndarray]]:
    """The rows of the table; the first is what `tvmscope run` does."""

    def pillow(**change: object) -> Callable[[Image.Image], np.ndarray]:
        return lambda image: preprocess(image, SPEC, replace(base, **change))[0]

    return {
        "| letterbox, 114 | **bilinear, antialiased (ours)**": pillow(),
        "| letterbox, 114 | bicubic, antialiased": pillow(filter="bicubic"),
        "| letterbox, 114 | box, antialiased": pillow(filter="box"),
        "| letterbox, 114 | bilinear without antialiasing": lambda i: without_antialiasing(i, base),
        "| letterbox, 114 | nearest": pillow(filter="nearest"),
        "| letterbox, 0 | bilinear, antialiased": pillow(fill=0),
        "| stretch | bilinear, antialiased": pillow(fit="stretch"),
        "| stretch | bilinear without antialiasing": lambda i: without_antialiasing(
            i, replace(base, fit="stretch")
        ),
    }


def saved(image: Image.Image, quality: int) -> Image.Image:
    """The picture after a JPEG file of some quality, 4:2:0."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality, subsampling="4:2:0")
    return Image.open(io.BytesIO(stream.getvalue())).convert("RGB")


def main() -> None:
    """Print both tables."""
    loaded = yolov4_tiny.load(LoadOptions())
    base = loaded.vision.preprocess

    def best(image: Image.Image, array: np.ndarray) -> dict[str, Box]:
        _, placement = preprocess(image, SPEC, base)
        with torch.no_grad():
            output = loaded.module(torch.from_numpy(array)).numpy()
        found = heads.decode("yolov5", [output], heads.Context(SIDE, SIDE))
        boxes = detect(found, placement, lambda n: namer((), n), score=LOW, iou=0.45)
        return {box.name: box for box in reversed(boxes)}  # the surest of a name stays

    def cells(rows: dict[str, Box], names: tuple[str, ...]) -> str:
        return " | ".join(f"{rows[n].score:.3f}"[1:] if n in rows else "-" for n in names)

    columns = [name for names in SOUGHT.values() for name in names]
    print("| fit | filter |", " | ".join(columns), "|")
    print("|---|---|" + "---|" * len(columns))
    for title, way in ways(base).items():
        parts = [cells(best(read(f), way(read(f))), names) for f, names in SOUGHT.items()]
        print(title, "|", " | ".join(parts), "|")
    print("\n| file |", " | ".join(columns), "| the cup's corners |")
    print("|---|" + "---|" * (len(columns) + 1))
    for title, change in {
        "as it is (PNG)": lambda i: i,
        **{f"JPEG, quality {q}": lambda i, q=q: saved(i, q) for q in QUALITIES},
    }.items():
        seen = {f: change(read(f)) for f in SOUGHT}
        rows = {f: best(i, preprocess(i, SPEC, base)[0]) for f, i in seen.items()}
        cup = " ".join(f"{x:.0f}" for x in rows["coffee.png"]["cup"].corners)
        parts = [cells(rows[f], names) for f, names in SOUGHT.items()]
        print(f"| {title} |", " | ".join(parts), f"| {cup} |")


if __name__ == "__main__":
    main()
