"""Models whose weights stay in files beside them, with a limit that small models are over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from support import outside_weights as made
from tvmscope.compiler import frontends, in_memory
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.prepared import outside_weights
from tvmscope.errors import ImportModelError
from tvmscope.models.prepare import prepare
from tvmscope.models.sensitivity import _onnx_runs

LAYERS, SIZE = 2, 600


def test_large_weights_are_read_only_when_the_graph_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside_weights, "MOST_BYTES", 1000)
    file = made.write(tmp_path, LAYERS, SIZE)
    folder = tmp_path / "prepared"
    model = prepare(str(file), str(folder), LoadOptions())
    graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
    assert len(outside_weights.outside(graph)) == LAYERS
    assert outside_weights.bytes_beside(folder) == 4 * LAYERS * SIZE**2
    for fallback in (False, True):
        imported = frontends.import_model(Prepared(folder, model), fallback=fallback)
        run = in_memory.compile_here(imported, CompileOptions())
        with np.load(folder / "inputs.npz") as inputs, np.load(folder / "reference.npz") as wanted:
            (found,) = run([inputs["x"]])
            np.testing.assert_allclose(found, wanted["y"], atol=1e-5)
            np.testing.assert_allclose(found, made.computed(LAYERS, inputs["x"]), atol=1e-5)
    for _, outputs in _onnx_runs(folder, 1e-7):
        np.testing.assert_allclose(outputs["y"], found, atol=1e-4)


def test_other_weights_give_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside_weights, "MOST_BYTES", 1000)
    file = made.write(tmp_path, 1, SIZE)
    first = prepare(str(file), str(tmp_path / "first"), LoadOptions()).digest
    assert prepare(str(file), str(tmp_path / "again"), LoadOptions()).digest == first
    with (tmp_path / made.FILE).open("r+b") as stream:
        stream.write(np.float32(0.5).tobytes())
    assert prepare(str(file), str(tmp_path / "second"), LoadOptions()).digest != first


def test_weights_outside_of_the_models_folder_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside_weights, "MOST_BYTES", 1000)
    inner = tmp_path / "inner"
    inner.mkdir()
    file = made.write(inner, 1, SIZE)
    (inner / made.FILE).rename(tmp_path / made.FILE)
    model = onnx.load(file, load_external_data=False)
    outside_weights.rename(model.graph.initializer, {made.FILE: f"../{made.FILE}"})
    file.write_bytes(model.SerializeToString())
    with pytest.raises(ImportModelError):
        prepare(str(file), str(tmp_path / "prepared"), LoadOptions())
