"""What tests of pictures share: a small classifier, a small detector, two pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support.command import TORCH_NET, run

DETECTOR = """
import torch

class Model(torch.nn.Module):
    '''Finds one box around the brightest column half: objectness from the picture itself.'''

    def forward(self, x):
        light = x.mean((1, 2, 3)).reshape(1, 1, 1)
        box = torch.tensor([[[16.0, 16.0, 16.0, 8.0], [24.0, 24.0, 4.0, 4.0]] + [[31.0] * 4] * 8])
        scores = torch.tensor([[[1.0, 0.2, 0.9], [0.5, 1.0, 0.0]] + [[0.0] * 3] * 8])
        return torch.cat((box + 0 * light, scores * light), -1)

def get_inputs():
    return [torch.rand(1, 3, 32, 32)]
"""


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of five classes and a detector of two, for this machine."""
    folder = tmp_path_factory.mktemp("artifacts")
    for name, text in (("net", TORCH_NET), ("detector", DETECTOR)):
        (folder / f"{name}.py").write_text(text)
        done = run("compile", f"{name}.py", "-o", name, "--target", "cpu", "-q", cwd=folder)
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
