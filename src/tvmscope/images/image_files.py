"""Reads any image file as RGB, upright and in 8 bits, or explains in one line why it cannot."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tvmscope.errors import ImportModelError, PictureError, UsageError, one_line
from tvmscope.messages import Text, msg
from tvmscope.models import download

if TYPE_CHECKING:
    from PIL.Image import Image

CAT = Path(__file__).with_name("cat.jpg")
"""Chelsea, a cat, by Stéfan van der Walt: scikit-image's photograph, CC0."""
MAX_PIXELS = 178_956_970
"""Half a gigabyte of RGB; Pillow's own limit, against small files that decompress to gigabytes."""


def read(path: Path) -> Image:
    """Return the image as RGB as a viewer shows it: rotated by its EXIF tag, white background."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # half the limit
            with Image.open(path) as file:
                _check_size(path, file)
                file.load()
                return to_rgb(ImageOps.exif_transpose(file))
    except PictureError:
        raise
    except FileNotFoundError as e:
        raise PictureError(msg("there is no image file '{path}'", path=path)) from e
    except Image.DecompressionBombError as e:
        raise PictureError(_too_large(path, msg("more pixels than its file should hold"))) from e
    except UnidentifiedImageError as e:
        raise PictureError(msg("'{path}' is not an image that Pillow can read", path=path)) from e
    except Exception as e:  # decoders raise everything from SyntaxError to struct.error
        raise PictureError(
            msg("'{path}' cannot be decoded: {reason}", path=path, reason=one_line(e))
        ) from e


def to_rgb(image: Image) -> Image:
    """Convert any mode to 8-bit RGB."""
    from PIL import Image

    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _from_deep(image).convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")


def _from_deep(image: Image) -> Image:
    """Convert greys of 16 or 32 bits, or floats, which Pillow itself would clip at 255."""
    from PIL import Image

    values = np.nan_to_num(np.asarray(image).astype(np.float64))
    top = float(values.max())
    if image.mode.startswith("I;16") or top > 255:
        scale = 255.0 / max(65535.0, top)
    else:
        scale = 255.0 if image.mode == "F" and top <= 1 else 1.0
    return Image.fromarray(np.clip(np.rint(values * scale), 0, 255).astype(np.uint8))


def _check_size(path: Path, image: Image) -> None:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise PictureError(
            _too_large(path, msg("{width}x{height} pixels", width=width, height=height))
        )
    if width * height == 0:
        raise PictureError(msg("'{path}' has no pixels", path=path))


def _too_large(path: Path, how: Text) -> Text:
    return msg(
        "'{path}' has {how}; the limit is {limit:,} pixels: scale it down first",
        path=path,
        how=how,
        limit=MAX_PIXELS,
    )


def find(places: Iterable[Path | str], *, offline: bool = False) -> list[Path]:
    """Return the named files, and the images of the folders among them, in order of name.

    A URL is downloaded into the cache, once. `cat` is the package's own image, if no file has that
    name.
    """
    found: list[Path] = []
    for named in places:
        if isinstance(named, str):
            found.append(_downloaded(named, offline))
            continue
        place = CAT if named == Path("cat") and not named.exists() else named
        if not place.is_dir():
            found.append(place)
            continue
        inside = [file for file in sorted(place.iterdir()) if _looks_like_picture(file)]
        if not inside:
            raise UsageError(
                msg("the folder {place} contains no images (.jpg, .png, .webp, ...)", place=place)
            )
        found += inside
    return found


def _downloaded(url: str, offline: bool) -> Path:
    try:
        return download.fetch(url, offline=offline)
    except ImportModelError as e:
        raise PictureError(e.message) from e


def _looks_like_picture(file: Path) -> bool:
    from PIL import Image

    known = Image.registered_extensions()
    return file.is_file() and not file.name.startswith(".") and file.suffix.lower() in known
