"""Estimates how far rounding alone changes a model's outputs, and computes them in float64.

It runs in a child process. The framework runs the model again with inputs and weights changed by
one unit in the last place, and in float64 if possible; the results differ from the reference by the
model's own noise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.core.prepared.outside_weights import is_outside
from tvmscope.core.prepared.sensitivity import MASK, MAX, RMS, RUNS, TRUTH, jumping
from tvmscope.errors import RunError, one_line
from tvmscope.messages import msg
from tvmscope.models.folder import read_prepared
from tvmscope.storage.files import map_npz, write_npz

if TYPE_CHECKING:
    from tvmscope.models.torch_module import LoadedModule

Array = np.ndarray[Any, Any]
Outputs = dict[str, Array]
DRAWS = 4
"""Perturbed runs; more would find a larger maximum, but hardly by a factor."""
MOST_WEIGHTS = 2 << 30
"""Bytes of weights in float32, above which a run in float64 would take too much memory and time."""
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


def write_truth(folder: str, output: str) -> None:
    """Write the outputs of a PyTorch model in float64; raise if it cannot run in it."""
    import torch

    from tvmscope.models.torch_module import load_module

    loaded = load_module(folder)
    weights = (*loaded.module.parameters(), *loaded.module.buffers())
    if (size := sum(t.numel() * t.element_size() for t in weights)) > MOST_WEIGHTS:
        raise RunError(msg("its weights have {size} MiB", size=size >> 20))
    try:
        with torch.no_grad():
            outputs = _in_float64(loaded)
    except Exception as e:  # the model's own code may raise anything
        raise RunError(msg("it cannot run in it: {reason}", reason=one_line(e))) from e
    narrow = [name for name, value in outputs.items() if value.dtype in (np.float32, np.float16)]
    if narrow:  # the code converts to a type that it names
        raise RunError(
            msg(
                "its output '{name}' stays {dtype}",
                name=narrow[0],
                dtype=str(outputs[narrow[0]].dtype),
            )
        )
    write_npz(Path(output), outputs)


def _in_float64(loaded: LoadedModule) -> Outputs:
    module = loaded.module.double()
    args = (a.double() if a.is_floating_point() else a for a in loaded.args)
    return {n: t.detach().numpy() for n, t in loaded.flatten(module(*args)).items()}


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
    with contextlib.suppress(Exception), torch.no_grad():  # code that names float32 cannot run so
        yield TRUTH, _in_float64(loaded)


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
