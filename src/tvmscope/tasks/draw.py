"""Draws an answer onto its picture: boxes in class colours, labels that can be read at any size."""

from __future__ import annotations

import colorsys
from pathlib import Path
from typing import TYPE_CHECKING

from tvmscope.core.vision import Answer
from tvmscope.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

Colour = tuple[int, int, int]

SMALLEST = 480
"""Pictures whose longer side is shorter are drawn enlarged: a label needs pixels to be read."""
_LARGEST = 4096
"""Enlarging a sliver (1 x 400) to `SMALLEST` stays below this."""
_GOLDEN = 0.618034
"""Steps of the golden ratio around the colour circle keep neighbouring classes apart."""
_FONT_SHARE, _LINE_SHARE = 1 / 42, 1 / 270
_LEAST_FONT = 11


def colour_of(index: int) -> Colour:
    """A strong colour for a class, always the same."""
    red, green, blue = colorsys.hsv_to_rgb((0.02 + index * _GOLDEN) % 1, 0.85, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


def ink_on(colour: Colour) -> Colour:
    """Black or white, whichever can be read on `colour`."""
    red, green, blue = colour
    return (0, 0, 0) if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else (255, 255, 255)


def draw(image: Image, answer: Answer) -> Image:
    """A copy of the picture with boxes, or with the best classes in its corner."""
    from PIL import ImageDraw

    canvas, factor = _enlarged(image)
    brush = ImageDraw.Draw(canvas)
    side = max(canvas.size)
    line = max(2, round(side * _LINE_SHARE))
    for box in reversed(answer.boxes):  # the best ones last, so that they lie on top
        left, top, right, bottom = (c * factor for c in box.corners)
        colour = colour_of(box.index)
        brush.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), None, colour, line)
    for box in reversed(answer.boxes):
        left, top = (c * factor for c in box.corners[:2])
        _label(brush, canvas.size, (left, top), f"{box.name} {box.score:.2f}", colour_of(box.index))
    row = 0.0
    for label in answer.labels:
        text = f"{label.score:6.1%}  {label.name}"
        row = _label(brush, canvas.size, (0.0, row), text, colour_of(label.index), below=True)
    return canvas


def _enlarged(image: Image) -> tuple[Image, int]:
    from PIL.Image import Resampling

    side = max(image.size)
    factor = max(1, min(-(-SMALLEST // side), _LARGEST // side))
    if factor == 1:
        return image.convert("RGB").copy(), 1
    size = (image.width * factor, image.height * factor)
    return image.convert("RGB").resize(size, Resampling.NEAREST), factor


def _label(
    brush: ImageDraw,
    size: tuple[int, int],
    place: tuple[float, float],
    text: str,
    colour: Colour,
    *,
    below: bool = False,
) -> float:
    """Write on a filled plate above `place` (or below it), inside the picture; gives its bottom."""
    from PIL import ImageFont

    height = max(_LEAST_FONT, round(max(size) * _FONT_SHARE))
    font = ImageFont.load_default(height)
    while brush.textlength(text, font) > size[0] and height > _LEAST_FONT:
        height -= 1
        font = ImageFont.load_default(height)
    pad = max(1, height // 6)
    _, _, wide, high = brush.textbbox((0, 0), text, font)
    plate = (wide + 2 * pad, high + 2 * pad)
    left = min(max(0.0, place[0]), max(0.0, size[0] - plate[0]))
    top = place[1] if below or place[1] < plate[1] else place[1] - plate[1]
    top = min(max(0.0, top), max(0.0, size[1] - plate[1]))
    brush.rectangle((left, top, left + plate[0], top + plate[1]), colour)
    brush.text((left + pad, top + pad), text, ink_on(colour), font)
    return top + plate[1]


def save(image: Image, path: Path) -> None:
    """Write in the format that the file's name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        image.save(path, quality=90)
    except (ValueError, OSError) as e:
        raise UsageError(f"--save-vis {path}: {e}") from e
