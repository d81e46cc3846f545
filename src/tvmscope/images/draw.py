"""Draws a result onto its image: boxes in class colours, labels readable at any size."""

from __future__ import annotations

import colorsys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvmscope.core.vision import Answer
from tvmscope.errors import UsageError
from tvmscope.messages import msg

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

Colour = tuple[int, int, int]

SMALLEST = 480
"""Images whose longer side is shorter are enlarged: a label needs pixels to be readable."""
_GOLDEN = 0.618034
"""Steps of the golden ratio around the colour circle keep neighbouring classes distinct."""
_FONT_SHARE, _LINE_SHARE = 1 / 42, 1 / 270
_LEAST_FONT = 11


def colour_of(index: int) -> Colour:
    """Return a strong colour for a class, always the same."""
    red, green, blue = colorsys.hsv_to_rgb((0.02 + index * _GOLDEN) % 1, 0.85, 0.95)
    return round(red * 255), round(green * 255), round(blue * 255)


def ink_on(colour: Colour) -> Colour:
    """Return black or white, whichever is readable on `colour`."""
    red, green, blue = colour
    return (0, 0, 0) if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else (255, 255, 255)


def draw(image: Image, answer: Answer) -> Image:
    """Return a copy of the image with boxes, or with the best classes in its corner."""
    from PIL import ImageDraw

    canvas, factor = _enlarged(image)
    brush = ImageDraw.Draw(canvas)
    line = max(2, round(max(canvas.size) * _LINE_SHARE))
    for box in reversed(answer.boxes):  # the best ones last, so that they are on top
        left, top, right, bottom = (c * factor for c in box.corners)
        colour = colour_of(box.index)
        brush.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), None, colour, line)
    plates = _Plates(brush, canvas.size)
    for box in answer.boxes:
        left, top = (c * factor for c in box.corners[:2])
        plates.add((left, top), f"{box.name} {box.score:.2f}", colour_of(box.index))
    for label in answer.labels:
        plates.add((0.0, 0.0), f"{label.score:.1%} {label.name}", colour_of(label.index))
    return canvas


def _enlarged(image: Image) -> tuple[Image, int]:
    from PIL.Image import Resampling

    side = max(image.size)
    factor = max(1, -(-SMALLEST // side))
    if factor == 1:
        return image.convert("RGB").copy(), 1
    size = (image.width * factor, image.height * factor)
    return image.convert("RGB").resize(size, Resampling.NEAREST), factor


class _Plates:
    """Labels on filled plates, inside the image, each moved down until it covers no other."""

    def __init__(self, brush: ImageDraw, size: tuple[int, int]) -> None:
        self.brush, self.size = brush, size
        self.taken: list[tuple[float, float, float, float]] = []

    def add(self, place: tuple[float, float], text: str, colour: Colour) -> None:
        """Write above `place` if there is room, else below it."""
        font, wide, high, pad = self._measure(text)
        left = min(max(0.0, place[0]), max(0.0, self.size[0] - wide))
        top = place[1] - high if place[1] >= high else max(0.0, place[1])
        lowest = max(0.0, self.size[1] - high)
        top = min(top, lowest)
        while top < lowest and (below := self._hit(left, top, left + wide, top + high)):
            top = min(below, lowest)
        area = (left, top, left + wide, top + high)
        self.taken.append(area)
        self.brush.rectangle(area, colour)
        self.brush.text((left + pad, top + pad), text, ink_on(colour), font)

    def _hit(self, left: float, top: float, right: float, bottom: float) -> float | None:
        """Return the bottom of a plate that this area would cover, a pixel further down."""
        for x0, y0, x1, y1 in self.taken:
            if left <= x1 and x0 <= right and top <= y1 and y0 <= bottom:
                return y1 + 1
        return None

    def _measure(self, text: str) -> tuple[Any, float, float, int]:
        """Return a font whose text fits the image's width if that is readable, and its plate."""
        from PIL import ImageFont

        height = max(_LEAST_FONT, round(max(self.size) * _FONT_SHARE))
        font = ImageFont.load_default(height)
        length = self.brush.textlength(text, font)
        if length > self.size[0]:
            height = max(_LEAST_FONT, int(height * self.size[0] / length))
            font = ImageFont.load_default(height)
        pad = max(1, height // 6)
        _, _, wide, high = self.brush.textbbox((0, 0), text, font)
        return font, wide + 2 * pad, high + 2 * pad, pad


def writable() -> set[str]:
    """Return the suffixes of files to which images can be written."""
    from PIL import Image

    known = Image.registered_extensions()
    return {suffix for suffix, kind in known.items() if kind in Image.SAVE}


def save(image: Image, path: Path) -> None:
    """Write in the format of the file's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        image.save(path, quality=90)
    except (ValueError, OSError) as e:
        raise UsageError(msg("--save-vis {path}: {reason}", path=path, reason=str(e))) from e
