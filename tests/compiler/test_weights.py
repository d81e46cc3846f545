"""Weights lie beside the library: checked before loading, and in memory only once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from support.references import PREPARE
from tvmscope.compiler import build
from tvmscope.core.artifact import StoredTensor
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.errors import RunError, SchemaError
from tvmscope.measure.remote import here
from tvmscope.measure.worker import Worker, run_isolated
from tvmscope.runtime import artifact as artifacts
from tvmscope.runtime import weights
from tvmscope.runtime.loaded_artifact import load_callable


def prepared(module: str, shape: tuple[int, ...], folder: Path) -> Prepared:
    """A single module of torch.nn."""
    source, ready = folder / "net.py", folder / "ready"
    source.write_text(
        "import torch\n\n"
        f"Model = lambda: torch.nn.{module}\n"
        f"get_inputs = lambda: [torch.ones({shape})]\n"
    )
    model = run_isolated(PREPARE, str(source), str(ready), LoadOptions())
    return Prepared(ready, model)


def built(ready: Prepared, folder: Path, target: Target) -> Path:
    build.build(ready, folder, target, target, CompileOptions())
    return folder


@pytest.fixture(scope="module")
def folder(conv_net: Prepared, host: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(conv_net, tmp_path_factory.mktemp("weights") / "a", host)


def test_arrays_come_back_aligned(tmp_path: Path) -> None:
    given = [np.arange(n, dtype=t).reshape(-1, 1) for n, t in ((7, "f2"), (300, "f4"), (5, "i8"))]
    stored = weights.save(given, tmp_path / "w")
    assert stored[1] == StoredTensor((300, 1), "float32", weights.ALIGNMENT)
    for array, wanted in zip(weights.load(stored, tmp_path / "w"), given, strict=True):
        assert array.ctypes.data % weights.ALIGNMENT == 0
        assert array.dtype == wanted.dtype
        np.testing.assert_array_equal(array, wanted)


def test_copies_lie_like_stored_arrays() -> None:
    given = np.arange(21, dtype=np.float32).reshape(7, 3)
    for copy in weights.copies(given, 3):
        assert copy.ctypes.data % weights.ALIGNMENT == 0
        np.testing.assert_array_equal(copy, given)


def test_large_constants_are_stored_apart(folder: Path, conv_net: Prepared) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    assert len(meta["stored"]) == 2, "the weights of both residual blocks"
    sizes = {f.name: f.stat().st_size for f in folder.iterdir()}
    assert meta["size_bytes"] == sizes["model.so"] + sizes["weights.bin"]
    with np.load(conv_net.inputs_path) as inputs, np.load(conv_net.reference_path) as expected:
        found = load_callable(folder)(**inputs)
        for name in expected.files:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("damage", ["changed", "cut off", "missing"])
def test_damaged_weights_are_refused(damage: str, folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "a"))
    file = copy / "weights.bin"
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(data[:-1] + (b"" if damage == "cut off" else bytes([data[-1] ^ 1])))
    wanted = "has no weights.bin" if damage == "missing" else "weights.bin is corrupted"
    with pytest.raises(SchemaError, match=f"{wanted}.*compile the model again"):
        load_callable(copy)


def test_weights_that_are_not_where_the_description_says_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "a"))
    meta = json.loads((copy / "meta.json").read_text())
    meta["stored"][0]["offset"] = 1 << 40
    (copy / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(RunError, match=r"weights.bin cannot be loaded.*compile the model again"):
        load_callable(copy)


def test_a_new_artifact_leaves_nothing_of_the_one_before(host: Target, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "weights.bin").write_bytes(b"of another model")
    built(prepared("ReLU()", (3,), tmp_path), tmp_path / "a", host)
    assert not (tmp_path / "a" / "weights.bin").exists()
    assert artifacts.read(tmp_path / "a").stored == ()


def peak_bytes() -> int:
    """Called in the worker: the most memory that it ever held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def load_and_run(folder: str) -> int:
    """Called in the worker: what loading and a first run add to the peak."""
    from tvmscope.runtime import tvm_compat

    tvm_compat.import_tvm(torch=False)
    before = peak_bytes()
    load_callable(Path(folder))(np.zeros((3, 2048), np.float32))
    return peak_bytes() - before


def test_weights_are_in_memory_once(host: Target, tmp_path: Path) -> None:
    ready = prepared("Linear(2048, 8192)", (3, 2048), tmp_path)
    folder = built(ready, tmp_path / "a", host)
    with Worker("load") as worker:
        added = worker.call(here(load_and_run), str(folder))
    weights_bytes = 2048 * 8192 * 4
    assert weights_bytes <= added < 1.4 * weights_bytes
