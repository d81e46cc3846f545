"""A model over 2 GiB, more than one ONNX file can hold: its weights lie beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvmscope
from support import outside_weights

pytestmark = pytest.mark.slow
LAYERS, SIZE = 6, 10_000


def test_a_model_over_two_gib_compiles_and_is_right(tmp_path: Path) -> None:
    file = outside_weights.write(tmp_path, LAYERS, SIZE)
    assert (tmp_path / outside_weights.FILE).stat().st_size > 2 << 30
    tvmscope.compile(file, tmp_path / "artifact", target="cpu")
    model = tvmscope.load_artifact(tmp_path / "artifact")
    x = np.random.default_rng(99).standard_normal((1, SIZE), np.float32)
    (found,) = model(x).values()
    np.testing.assert_allclose(found, outside_weights.computed(LAYERS, x), atol=1e-4)
