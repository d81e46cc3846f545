"""Photographs that anybody may use: scikit-image's, CC0 or in the public domain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from skimage import data

SKIMAGE = Path(data.__file__).parent


def photograph(name: str) -> Path:
    """coffee.png (CC0, Rachel Michetti), chelsea.png, a cat (CC0, Stéfan van der Walt),
    camera.png (CC0, Lav Varshney), astronaut.png (NASA) or rocket.jpg (SpaceX), both in the public
    domain."""
    return SKIMAGE / name


def two_people(folder: Path) -> Path:
    """The astronaut beside the cameraman, as one picture in `folder`."""
    names = ("astronaut.png", "camera.png")
    sides = [np.asarray(Image.open(photograph(name)).convert("RGB")) for name in names]
    file = folder / "two-people.png"
    Image.fromarray(np.concatenate(sides, axis=1)).save(file)
    return file
