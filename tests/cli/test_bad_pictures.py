"""Odd and broken pictures through the command: answered, or refused in a line of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support.command import asked, run

COLOUR = Image.new("RGB", (40, 20), (200, 60, 30))


def odd(folder: Path) -> dict[str, tuple[int, int]]:
    """Pictures that can be read, by name, and the size at which they must be seen."""
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    COLOUR.save(folder / "rotated.jpg", exif=exif)
    COLOUR.convert("CMYK").save(folder / "cmyk.jpg")
    COLOUR.convert("P").save(folder / "palette.png")
    COLOUR.convert("L").save(folder / "grey.png")
    Image.fromarray(np.full((20, 40), 40_000, np.uint16)).save(folder / "deep.png")
    COLOUR.resize((1, 1)).save(folder / "one.png")
    COLOUR.resize((20_000, 30)).save(folder / "wide.png")
    sizes = {"rotated.jpg": (20, 40), "one.png": (1, 1), "wide.png": (20_000, 30)}
    return {f.name: sizes.get(f.name, (40, 20)) for f in folder.iterdir()}


def broken(folder: Path) -> dict[str, str]:
    """Files that cannot be read, by name, and what must be said about them."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(folder / "whole.jpg")
    whole = (folder / "whole.jpg").read_bytes()
    (folder / "whole.jpg").unlink()
    (folder / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "text.png").write_text("hello")
    (folder / "empty.jpg").touch()
    told = {"truncated.jpg": "cannot be decoded"}
    return {f.name: told.get(f.name, "is not an image") for f in folder.iterdir()}


@pytest.mark.parametrize("name", ["net", "detector"])
def test_odd_pictures_are_answered(artifacts: Path, tmp_path: Path, name: str) -> None:
    sizes = odd(tmp_path)
    said = asked(artifacts, name, "--image", str(tmp_path), "--input-scale", "1/255")
    found = {Path(p["picture"]).name: (p["width"], p["height"]) for p in said["pictures"]}
    assert found == sizes
    assert all(p["failure"] is None for p in said["pictures"])


def test_a_broken_picture_is_a_line_and_exit_1(artifacts: Path, tmp_path: Path) -> None:
    told = broken(tmp_path)
    COLOUR.save(tmp_path / "good.png")
    said = asked(artifacts, "net", "--image", str(tmp_path), code=1)
    failures = {Path(p["picture"]).name: p["failure"] for p in said["pictures"]}
    assert failures.pop("good.png") is None
    assert set(failures) == set(told)
    for name, words in told.items():
        assert words in failures[name]
        assert "\n" not in failures[name]
    shown = run("run", str(artifacts / "net"), "--image", str(tmp_path / "text.png"), "gone.jpg")
    assert shown.returncode == 1
    assert "is not an image" in shown.stderr
    assert "there is no image file 'gone.jpg'" in shown.stderr
    assert "Traceback" not in shown.stderr
