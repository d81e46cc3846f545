"""Estimates how far rounding alone changes a model's outputs.

It runs in a child process. The framework runs the model again with inputs and weights changed by
one unit in the last place, and in float64 if possible; the results differ from the reference by the
model's own noise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tvmscope.core.prepared.outside_weights import is_outside
from tvmscope.core.prepared.sensitivity import MASK, MAX, RMS, RUNS, TRUTH, jumping
from tvmscope.models.folder import read_prepared
from tvmscope.storage.files import map_npz, write_npz

Array = np.ndarray[Any, Any]
Outputs = dict[str, Array]
DRAWS = 4
"""Perturbed runs; more would find a larger maximum, but hardly by a factor."""
_MOST = 1 << 24
"""Elements of an output whose results are kept; boxes and masks of detected objects have fewer."""


def estimate(folder: str, output: str, unit: float) -> None:
    """Write the estimate; `unit` is the relative size of one unit in the last place."""
    prepared = read_prepared(folder)
    reference = map_npz(prepared.reference_path)
    runs = _torch_runs if prepared.model.format == "torch" else _onnx_runs
    found: Outputs = {}
    kept: dict[str, list[Array]] = {}
    for kind, outputs in runs(Path(folder), unit):
        for name, expected in reference.items():
            if name in outputs and outputs[name].shape == expected.shape:
                _note(found, name, expected, outputs[name], is_truth=kind == TRUTH)
                if expected.dtype.kind == "f" and 0 < expected.size <= _MOST:
                    kept.setdefault(name, []).append(outputs[name].astype(expected.dtype))
    for name, seen in kept.items():
        if any(jumping(np.abs(each - reference[name])).any() for each in seen):
            found[f"{RUNS}{name}"] = np.stack(seen)
    write_npz(Path(output), found)


def _note(found: Outputs, name: str, expected: Array, seen: Array, *, is_truth: bool) -> None:
    if expected.dtype.kind in "biu":
        moved = (expected != seen).astype(np.uint8)
        found[f"{MASK}{name}"] = np.maximum(found.get(f"{MASK}{name}", moved), moved)
        return
    gap = np.abs(seen.astype(np.float64) - expected.astype(np.float64))
    gap = gap[np.isfinite(gap)]
    for key, value in (
        (f"{MAX}{name}", float(gap.max(initial=0.0))),
        (f"{RMS}{name}", float(np.sqrt(np.square(gap).mean())) if gap.size else 0.0),
    ):
        found[key] = np.array(max(float(found.get(key, 0.0)), value))
    if is_truth:
        found[f"{TRUTH}{name}"] = seen.astype(np.float64)


def nudged(array: Array, unit: float, draws: np.random.Generator) -> Array:
    """Change each element of a floating-point array by one unit up, one down, or not at all."""
    if array.dtype.kind != "f":
        return array
    steps = draws.integers(-1, 2, size=array.shape).astype(array.dtype)
    return np.asarray(array * (1 + array.dtype.type(unit) * steps), dtype=array.dtype)


def _torch_runs(folder: Path, unit: float) -> Iterator[tuple[str, Outputs]]:
    import torch

    from tvmscope.models.torch_module import load_module

    loaded = load_module(str(folder))
    module, args = loaded.module, loaded.args
    tensors = [t for t in (*module.parameters(), *module.buffers()) if t.dtype == torch.float32]
    weights = [t.detach().clone() for t in tensors]

    def outputs(inputs: tuple[Any, ...]) -> Outputs:
        with torch.no_grad():
            return {n: t.detach().numpy() for n, t in loaded.flatten(module(*inputs)).items()}

    for number in range(DRAWS):
        draws = np.random.default_rng(number)
        with torch.no_grad():
            for tensor, weight in zip(tensors, weights, strict=True):
                tensor.copy_(torch.from_numpy(nudged(weight.numpy(), unit, draws)))
        yield "", outputs(tuple(torch.from_numpy(nudged(a.numpy(), unit, draws)) for a in args))
    with torch.no_grad():
        for tensor, weight in zip(tensors, weights, strict=True):
            tensor.copy_(weight)
    with contextlib.suppress(Exception):  # code that names float32 cannot run in float64
        module.double()
        yield TRUTH, outputs(tuple(a.double() if a.is_floating_point() else a for a in args))


def _onnx_runs(folder: Path, unit: float) -> Iterator[tuple[str, Outputs]]:
    """With changed inputs and weights, and without the runtime's own optimisations.

    Large weights in files beside the model stay as they are.
    """
    import onnx
    import onnxruntime
    from onnx import numpy_helper

    model = onnx.load(folder / "model.onnx", load_external_data=False)
    inputs = map_npz(folder / "inputs.npz")
    names = [output.name for output in model.graph.output]
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(folder)
    )

    def outputs(data: bytes, values: Outputs) -> Outputs:
        session = onnxruntime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
        return dict(zip(names, session.run(names, values), strict=True))

    kept = [
        (tensor, numpy_helper.to_array(tensor))
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT and not is_outside(tensor)
    ]
    for number in range(DRAWS):
        draws = np.random.default_rng(number)
        for tensor, weight in kept:
            tensor.CopyFrom(numpy_helper.from_array(nudged(weight, unit, draws), tensor.name))
        moved = {name: nudged(value, unit, draws) for name, value in inputs.items()}
        yield "", outputs(model.SerializeToString(), moved)
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    yield "", outputs((folder / "model.onnx").read_bytes(), dict(inputs))
