"""A compiled model as a callable: what it takes, what it returns, and what its folder says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.references import PREPARE
from tvmscope.compiler import build
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.errors import UsageError
from tvmscope.measure.worker import run_isolated
from tvmscope.runtime.loaded_artifact import LoadedArtifact, load_callable

NESTED = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(500, 6)

    def forward(self, ids, scale, shift):
        found = self.table(ids)
        scaled = found * scale
        return {"sum": scaled.sum(-1), "parts": (scaled + shift, [ids + 1, found.mean()])}

def get_inputs():
    torch.manual_seed(1)
    return [torch.randint(0, 50, (2, 7)), torch.randn(6), torch.tensor(0.5)]
"""
README = Path(__file__).parents[2] / "README.md"
BLOCKED = "import sys\nfor name in ('torch', 'tvmscope', 'triton'):\n    sys.modules[name] = None\n"
KEEP = 'np.savez("out.npz", **outputs)\n'


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Integer and scalar inputs, and outputs in a dict of tuples and lists."""
    folder = tmp_path_factory.mktemp("nested")
    (folder / "nested.py").write_text(NESTED)
    ready = folder / "prepared"
    model = run_isolated(PREPARE, str(folder / "nested.py"), str(ready), LoadOptions())
    return Prepared(ready, model)


def compiled(ready: Prepared, folder: Path, target: Target, **options: str) -> Path:
    build.build(ready, folder, target, target, CompileOptions(**options))  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="module")
def folder(nested: Prepared, host: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(nested, tmp_path_factory.mktemp("artifact") / "a", host)


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedArtifact:
    return load_callable(folder)


def arrays(file: Path) -> dict[str, np.ndarray]:
    with np.load(file) as data:
        return {name: data[name] for name in data.files}


def same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(actual) == list(expected)
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype
        np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-5)


def test_numpy_arrays_by_position_and_by_name(model: LoadedArtifact, nested: Prepared) -> None:
    inputs, expected = arrays(nested.inputs_path), arrays(nested.reference_path)
    same(model(*inputs.values()), expected)
    same(model(**inputs), expected)
    ids, scale, shift = inputs.values()
    same(model(ids, shift=shift, scale=scale), expected)


def test_nested_outputs_have_names_shapes_and_types(model: LoadedArtifact) -> None:
    outputs = {s.name: (s.shape, s.dtype) for s in model.artifact.outputs}
    assert outputs == {
        "sum": ((2, 7), "float32"),
        "parts.0": ((2, 7, 6), "float32"),
        "parts.1.0": ((2, 7), "int64"),
        "parts.1.1": ((), "float32"),
    }


def test_tensors_of_other_libraries_come_by_dlpack(model: LoadedArtifact, nested: Prepared) -> None:
    tensors = [torch.from_numpy(a) for a in arrays(nested.inputs_path).values()]
    same(model(*tensors), arrays(nested.reference_path))


def test_a_tensor_that_fits_is_not_copied(model: LoadedArtifact) -> None:
    specs = {s.name: s for s in model.artifact.inputs}
    tensor = torch.zeros(6)  # torch aligns its memory to 64 bytes, numpy does not
    placed = model._place_one(specs["scale"], tensor)
    tensor.fill_(3)
    assert placed.numpy().tolist() == [3.0] * 6


def test_a_tensor_that_is_not_contiguous_is_taken_as_it_reads(
    model: LoadedArtifact, nested: Prepared
) -> None:
    inputs = arrays(nested.inputs_path)
    ids = inputs["ids"]
    crooked = np.asfortranarray(ids)
    same(model(**inputs | {"ids": crooked}), arrays(nested.reference_path))
    tensor = torch.from_numpy(np.ascontiguousarray(ids.T)).T
    assert not tensor.is_contiguous()
    same(model(**inputs | {"ids": tensor}), arrays(nested.reference_path))


def test_a_result_is_not_overwritten_by_the_next_run(
    model: LoadedArtifact, nested: Prepared
) -> None:
    inputs = arrays(nested.inputs_path)
    first = model(**inputs)
    kept = {name: value.copy() for name, value in first.items()}
    model(**inputs | {"ids": np.zeros_like(inputs["ids"])})
    same(first, kept)


def test_spoiled_memory_shows_a_kernel_that_does_nothing(
    model: LoadedArtifact, nested: Prepared
) -> None:
    placed = model.place(arrays(nested.inputs_path))
    run, skip = 0, 1  # what the VM's instrument may answer

    def without_kernels(_: object, name: str, before: bool, *__: object) -> int:
        return skip if before and not name.startswith("vm.builtin.") else run

    def result(**instrument: Any) -> dict[str, np.ndarray]:
        model.machine.set_instrument(instrument.get("given"))
        try:
            return {k: v.copy() for k, v in model.name_outputs(model.run(placed)).items()}
        finally:
            model.machine.set_instrument(None)

    same(result(), arrays(nested.reference_path))
    old = result(given=without_kernels)  # what lies in memory
    assert not all(np.isnan(v).all() for v in old.values() if v.dtype.kind == "f")
    for _ in range(2):
        assert model.run_and_spoil(placed) > 0
    spoiled = result(given=without_kernels)
    assert all(np.isnan(v).all() for v in spoiled.values() if v.dtype.kind == "f")
    model.run_and_spoil(placed)
    same(result(), arrays(nested.reference_path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ids": np.zeros((2, 7), np.int32)}, r"'ids' must be int64\[2, 7\], got int32\[2, 7\]"),
        ({"scale": np.zeros((5,), np.float32)}, r"'scale' must be float32\[6\]"),
        ({"shift": np.zeros((1,), np.float32)}, r"'shift' must be float32\[\]"),
        ({"ids": torch.zeros((2, 8), dtype=torch.int64)}, r"got int64\[2, 8\]"),
        ({"scale": torch.zeros(6, dtype=torch.float64)}, r"got float64\[6\]"),
        ({"scale": torch.zeros(12, dtype=torch.bfloat16)[::2]}, "cannot be taken by DLPack"),
        ({"more": np.zeros(1)}, "unknown more.*the model takes: ids, scale, shift"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    change: dict[str, object], words: str, model: LoadedArtifact, nested: Prepared
) -> None:
    with pytest.raises(UsageError, match=words):
        model(**arrays(nested.inputs_path) | change)


def test_too_few_and_too_many_inputs_are_refused(model: LoadedArtifact, nested: Prepared) -> None:
    values = list(arrays(nested.inputs_path).values())
    with pytest.raises(UsageError, match="missing shift"):
        model(*values[:2])
    with pytest.raises(UsageError, match="takes 3 inputs, got 4"):
        model(*values, values[0])
    with pytest.raises(UsageError, match="ids"):
        model(*values, ids=values[0])


def test_both_exec_modes_give_equal_outputs(
    conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    inputs = arrays(conv_net.inputs_path)
    found = {}
    for mode in ("bytecode", "compiled"):
        loaded = load_callable(compiled(conv_net, tmp_path / mode, host, exec_mode=mode))
        assert loaded.artifact.exec_mode == mode
        found[mode] = loaded(**inputs)
    same(found["bytecode"], arrays(conv_net.reference_path))
    for name, value in found["bytecode"].items():
        np.testing.assert_array_equal(found["compiled"][name], value)


def test_it_runs_with_tvm_alone_as_the_readme_says(
    folder: Path, model: LoadedArtifact, tmp_path: Path
) -> None:
    section = README.read_text().partition("with TVM alone")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "alone.py").write_text(BLOCKED + code + KEEP)
    (tmp_path / "artifact").symlink_to(folder)
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([sys.executable, "alone.py"], check=True, cwd=tmp_path, env=clean, timeout=120)
    zeros = [np.zeros(spec.shape, spec.dtype) for spec in model.artifact.inputs]
    same(arrays(tmp_path / "out.npz"), model(*zeros))


def test_meta_says_what_was_built(folder: Path, nested: Prepared, host: Target) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["schema_version"] == 2
    assert meta["model"] == "nested"
    assert meta["source"].endswith("nested.py")
    assert meta["model_digest"] == nested.model.digest
    assert (meta["exec_mode"], meta["precision"], meta["pipeline"]) == (
        "bytecode", "float32", "tvmscope",
    )  # fmt: skip
    assert meta["tuned"] is False
    assert [s["name"] for s in meta["inputs"]] == ["ids", "scale", "shift"]
    assert [s["dtype"] for s in meta["inputs"]] == ["int64", "float32", "float32"]
    assert meta["target"]["arch"] == host.arch
    assert meta["target"]["features"] == list(host.features)
    assert {"tvm", "apache-tvm-ffi", "tvmscope", "python", "torch"} <= set(meta["versions"])
    assert len(meta["library_digest"]) == len(meta["stored_digest"]) == 64
    assert [t["shape"] for t in meta["stored"]] == [[500, 6]]
    named = " ".join(op for call in meta["kernels"] for op in call["source_ops"])
    assert "table/embedding" in named
    assert "path" not in meta


def test_a_moved_folder_still_runs(folder: Path, nested: Prepared, tmp_path: Path) -> None:
    moved = tmp_path / "else" / "where"
    moved.mkdir(parents=True)
    for file in folder.iterdir():
        (moved / file.name).write_bytes(file.read_bytes())
    same(load_callable(moved)(**arrays(nested.inputs_path)), arrays(nested.reference_path))
