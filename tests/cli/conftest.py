"""What tests of pictures share: a small classifier, a small detector, two pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support import onnx_nets
from support.command import run


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of five classes and a detector of two, for this machine."""
    folder = tmp_path_factory.mktemp("artifacts")
    for name, save in (("net", onnx_nets.classifier), ("detector", onnx_nets.detector)):
        save(folder / f"{name}.onnx")
        done = run("compile", f"{name}.onnx", "-o", name, "--target", "cpu", "-q", cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("a.png", "c.jpg"):
        noise = rng.integers(200, 256, (48, 64, 3), np.uint8)
        Image.fromarray(noise).save(folder / name)
    return folder
