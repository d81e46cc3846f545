"""Any picture becomes upright 8-bit RGB, or is refused in one clear line."""

from __future__ import annotations

import struct
import zlib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from PIL import Image

from tvmscope.errors import PictureError, UsageError
from tvmscope.images import image_files
from tvmscope.models import download

RED, WHITE = (255, 0, 0), (255, 255, 255)


def stored(image: Image.Image, path: Path, **more: object) -> Path:
    image.save(path, **more)
    return path


def pixels(path: Path) -> np.ndarray:
    image = image_files.read(path)
    assert image.mode == "RGB"
    return np.asarray(image)


def near(actual: np.ndarray, colour: tuple[int, int, int], by: int = 4) -> bool:
    return bool((np.abs(actual.astype(int) - colour) <= by).all())


def test_cmyk(tmp_path: Path) -> None:
    image = Image.new("CMYK", (5, 4), (0, 255, 255, 0))
    for name in ("a.tif", "a.jpg"):
        assert near(pixels(stored(image, tmp_path / name)), RED, by=8)


def test_palette_with_a_transparent_colour_lies_on_white(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((1, 0), 1)
    assert near(pixels(stored(image, tmp_path / "a.png"))[0], ((255, 0, 0), (0, 0, 255)))
    clear = pixels(stored(image, tmp_path / "b.png", transparency=1))
    assert near(clear[0], (RED, WHITE))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_alpha_lies_on_white(tmp_path: Path, mode: str) -> None:
    image = Image.new(mode, (3, 3), 0)
    assert near(pixels(stored(image, tmp_path / "a.png")), WHITE)


@pytest.mark.parametrize("value", [0, 200, 40_000, 65_535])
def test_16_bit_grey_is_scaled_not_cut_off(tmp_path: Path, value: int) -> None:
    image = Image.fromarray(np.full((4, 4), value, np.uint16))
    for name in ("a.png", "a.tif"):
        found = pixels(stored(image, tmp_path / name))
        assert near(found, (round(value / 257),) * 3, by=1)


def test_32_bit_and_float_greys(tmp_path: Path) -> None:
    deep = Image.fromarray(np.array([[0, 65_535]], np.int32))
    assert pixels(stored(deep, tmp_path / "a.tif"))[0, :, 0].tolist() == [0, 255]
    share = Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32))
    assert pixels(stored(share, tmp_path / "b.tif"))[0, :, 1].tolist() == [0, 128, 255]


@pytest.mark.parametrize("mode", ["1", "L", "YCbCr"])
def test_plain_modes(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGB", (4, 4), WHITE).convert(mode)
    assert near(pixels(stored(image, tmp_path / "a.tif")), WHITE)


@pytest.mark.parametrize(
    ("orientation", "corner"), [(1, (0, 0)), (3, (-1, -1)), (6, (0, -1)), (8, (-1, 0))]
)
def test_exif_rotation_is_applied(
    tmp_path: Path, orientation: int, corner: tuple[int, int]
) -> None:
    image = Image.new("RGB", (16, 8), WHITE)
    image.paste(RED, (0, 0, 8, 4))
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = pixels(stored(image, tmp_path / "a.png", exif=exif))
    assert found.shape[:2] == ((8, 16) if orientation in (1, 3) else (16, 8))
    assert near(found[corner], RED)


def test_one_pixel(tmp_path: Path) -> None:
    assert pixels(stored(Image.new("RGB", (1, 1), RED), tmp_path / "a.png")).shape == (1, 1, 3)


def test_20000_pixels_wide(tmp_path: Path) -> None:
    path = stored(Image.new("L", (20_000, 5_000)), tmp_path / "a.png")
    assert image_files.read(path).size == (20_000, 5_000)


def refused(path: Path, *words: str) -> None:
    with pytest.raises(PictureError) as caught:
        image_files.read(path)
    text = str(caught.value)
    assert "\n" not in text
    assert path.name in text
    for word in words:
        assert word in text


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff", "gif", "bmp"])
def test_a_truncated_file_is_refused(tmp_path: Path, kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    buffer = BytesIO()
    Image.fromarray(noise).save(buffer, kind)
    path = tmp_path / f"a.{kind}"
    path.write_bytes(buffer.getvalue()[: buffer.tell() // 2])
    refused(path)


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    for name, content in (("empty.jpg", b""), ("text.png", b"hello\n"), ("zeros.jpg", bytes(99))):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, "is not an image")
    refused(tmp_path / "gone.jpg", "there is no image file")


def test_a_small_file_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    (tmp_path / "bomb.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(999)))
        + chunk(b"IEND", b"")
    )  # fmt: skip
    refused(tmp_path / "bomb.png", "178,956,970")


def test_a_folder_gives_its_pictures_in_order(tmp_path: Path) -> None:
    for name in ("b.JPG", "a.png", "notes.txt", ".hidden.png"):
        (tmp_path / name).touch()
    named = tmp_path / "notes.txt"
    assert [p.name for p in image_files.find([named, tmp_path])] == ["notes.txt", "a.png", "b.JPG"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="contains no images"):
        image_files.find([tmp_path / "empty"])


def test_the_packages_own_picture_is_a_cat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (found,) = image_files.find([Path("cat")])
    assert image_files.read(found).size == (451, 300)
    Image.new("RGB", (3, 2)).save(tmp_path / "cat", format="PNG")
    assert image_files.find([Path("cat")]) == [Path("cat")], "a file of that name comes first"


def test_an_address_is_downloaded_once_and_not_where_that_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    Image.new("RGB", (3, 2)).save(served / "a.png")
    monkeypatch.setattr(download, "cache_folder", lambda: tmp_path / "cache")
    handler = partial(SimpleHTTPRequestHandler, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/a.png"
        with pytest.raises(PictureError, match="downloads are off"):
            image_files.find([url], offline=True)
        (found,) = image_files.find([url])
        server.shutdown()
        thread.join()
    assert image_files.read(found).size == (3, 2)
    assert image_files.find([url], offline=True) == [found], "it is in the cache"
    with pytest.raises(PictureError, match="cannot download"):
        image_files.find([url.replace("a.png", "b.png")])
