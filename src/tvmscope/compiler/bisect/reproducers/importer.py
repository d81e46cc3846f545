"""Runs one model in its own framework and through TVM's importer, on the same inputs.

Ends with 1 while the two differ. Beside it: model.onnx or model.pt2, inputs.npz, and meta.json.
"""

import json
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

Arrays = dict[str, np.ndarray]
HERE = Path(__file__).resolve().parent
META = json.loads((HERE / "meta.json").read_text())


def with_onnx(inputs: Arrays) -> tuple[list[np.ndarray], tvm.IRModule, list[str]]:
    import onnx
    import onnxruntime as ort
    from tvm.relax.frontend.onnx import from_onnx

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(HERE / "model.onnx", options, ["CPUExecutionProvider"])
    model = onnx.load(HERE / "model.onnx")
    module = from_onnx(model, keep_params_in_input=False)
    return session.run(None, inputs), module, [i.name for i in model.graph.input]


def with_torch(inputs: Arrays) -> tuple[list[np.ndarray], tvm.IRModule, list[str]]:
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    program = torch.export.load(HERE / "model.pt2")
    with torch.no_grad():
        result = program.module()(*(torch.from_numpy(a) for a in inputs.values()))
    results = result if isinstance(result, list | tuple) else [result]
    module = from_exported_program(program.run_decompositions())
    return [r.numpy() for r in results], module, list(inputs)


def run(module: tvm.IRModule, inputs: list[np.ndarray]) -> list[np.ndarray]:
    target = tvm.target.Target(META["target"], host=META["target"])
    machine = relax.VirtualMachine(tvm.compile(module, target), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(a) for a in inputs))
    return [x.numpy() for x in ([result] if hasattr(result, "numpy") else result)]


def compare(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the largest difference relative to the largest value; NaN if only one has a NaN."""
    if expected.size != actual.size:
        return float("inf")
    actual = actual.reshape(expected.shape)
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0)) or 1.0
    with np.errstate(invalid="ignore"):
        gap = np.abs(actual.astype("float64") - expected.astype("float64"))
    gap[(expected == actual) | (np.isnan(expected) & np.isnan(actual))] = 0
    return float(gap.max(initial=0)) / scale


if __name__ == "__main__":
    with np.load(HERE / "inputs.npz") as given:
        arrays = {name: given[name] for name in given.files}
    framework = with_onnx if (HERE / "model.onnx").exists() else with_torch
    expected, imported, order = framework(arrays)
    actual = run(imported, [arrays[name] for name in order])
    errors = [compare(np.asarray(a), b) for a, b in zip(expected, actual, strict=False)]
    wrong = [e for e in errors if not e <= META["tolerance"]]
    print(f"{META['what']}: max|TVM-framework| / max|framework| is {errors}")
    print("DIFFERENT" if wrong else "the same", f"(tolerance {META['tolerance']:g})")
    sys.exit(1 if wrong else 0)
