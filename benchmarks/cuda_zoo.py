"""What published models become on a GPU, without one: launches by kind, and whether they compute.

    python benchmarks/cuda_zoo.py RESULTS.jsonl [--precisions float16] [--no-check] [NAME ...]

Each model of zoo.py is lowered for sm_90. Its generated kernels are then computed by their numpy
references and all others as TVM's CPU code, and the outputs are compared with PyTorch's. A line per
model and precision is appended to RESULTS.jsonl; those that have a line are left out. A launch is
counted as `other` where no template of ours computes it; its name says what it fuses. Weights are
random.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import zoo  # noqa: E402

from support import placed_units  # noqa: E402
from tvmscope.compiler import pipeline, targets  # noqa: E402
from tvmscope.compiler.frontends.torch import importer  # noqa: E402
from tvmscope.core.options import CompileOptions  # noqa: E402
from tvmscope.core.precision import Precision  # noqa: E402
from tvmscope.models import flat  # noqa: E402

SORTS = ("dispatch-sort-scan",)
"""Sums and sorts of a GPU's own do not run here: TVM's for CPUs take their place."""


def described(name: str, precision: str, check: bool) -> dict[str, Any]:
    """A line of results."""
    start = time.process_time()
    line: dict[str, Any] = {"name": name, "precision": precision}
    try:
        module, args, kwargs = zoo.load(name)
        module.requires_grad_(False)
        call = flat.flat_call(module, args, kwargs)
        wanted = flat.flatten(call.module(*call.tensors))
        with torch.no_grad():
            program = torch.export.export(flat.flat_outputs(call).module, call.tensors)
        imported = importer.translate(importer.decomposed(program), name, fallback=True)
        line["fallback"] = len(imported.fallbacks)
        lowered = _lowered(imported.module, precision)
        units, others = placed_units.launches(lowered)
        line |= {"units": dict(units), "others": dict(others)}
        if check and not imported.fallbacks:
            given = [flat.to_numpy(tensor) for tensor in call.tensors]
            found = placed_units.run(lowered, *given)
            pairs = zip(found, wanted.values(), strict=True)
            line["error"] = max(_error(ours, flat.to_numpy(theirs)) for ours, theirs in pairs)
    except Exception as e:  # any part of a model may fail: that is the result
        line["problem"] = f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"
    return line | {"cpu_s": round(time.process_time() - start, 1)}


def _lowered(module: tvm.IRModule, precision: str) -> tvm.IRModule:
    gpu = targets.resolve(placed_units.GPU)
    made = tvm.target.Target(targets.to_tvm(gpu), host={"kind": "llvm"})
    options = CompileOptions(precision=Precision.parse(precision), disabled_passes=SORTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pipeline.run(module, gpu, made, options, until="schedule").module
    with tvm.target.Target("llvm"):
        module = relax.backend.DispatchSortScan()(module)
    return relax.transform.LegalizeOps()(module)


def _error(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> float:
    if ours.shape != theirs.shape:
        raise ValueError(f"{ours.shape} where PyTorch has {theirs.shape}")
    scale = np.abs(theirs).max() or 1.0
    error = float(np.abs(ours.astype(np.float64) - theirs).max() / scale)
    if not np.isfinite(error):
        raise ValueError("a result is not finite")
    return error


def said(line: dict[str, Any]) -> str:
    """A line for people."""
    head = f"{line['name']} {line['precision']}"
    if "problem" in line:
        return f"{head}: {line['problem']}"
    kinds = ", ".join(f"{n} {kind}" for kind, n in line["units"].items())
    others = ", ".join(f"{n} {name}" for name, n in line["others"].items())
    error = f"; error {line['error']:.1e}" if "error" in line else ""
    count = sum(line["units"].values()) + sum(line["others"].values())
    return f"{head}: {count} launches: {kinds}; other: {others or 'none'}{error}"


def main() -> None:
    """Describe what has no line yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--precisions", default="float16,float32")
    parser.add_argument("--no-check", action="store_true", help="count launches only")
    given = parser.parse_intermixed_args()
    text = given.results.read_text() if given.results.exists() else ""
    known = {(line["name"], line["precision"]) for line in map(json.loads, text.splitlines())}
    for name in given.names or zoo.names():
        for precision in given.precisions.split(","):
            if (name, precision) in known:
                continue
            line = described(name, precision, not given.no_check)
            print(said(line), flush=True)
            with given.results.open("a") as stream:
                stream.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
