"""Run an artifact a thousand times: the same bits every time, and no memory that is not given back.

python scripts/repeat_runs.py ARTIFACT [--runs 1000] [-o OUT.json]

Two inputs take turns, so that a result which a run left behind would be seen. The artifact's own
loader is used: TVM alone.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SETTLED = 0.2
"""The share of runs after which memory must not grow: graphs and pools are set up then."""
MOST_GPU_BYTES = 4 << 20
MOST_HOST_BYTES = 32 << 20


def main() -> int:
    """Parse, run, write, and say what is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    result = repeat(arguments.artifact, arguments.runs)
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1))
    print(json.dumps(result))
    return 1 if result["problems"] else 0


def repeat(folder: Path, runs: int) -> dict[str, Any]:
    """What came of the runs; `problems` is empty where all is well."""
    model = loader(folder).Model(folder)
    inputs = [draw(model.inputs, seed) for seed in (0, 1)]
    found: list[set[str]] = [set(), set()]
    settled = max(1, int(runs * SETTLED))
    before: tuple[int | None, int] = (None, 0)
    start = time.perf_counter()
    for number in range(runs):
        if number == settled:
            before = memory(model.gpu)
        which = number % 2
        found[which].add(digest(model(**inputs[which])))
    after = memory(model.gpu)
    result = {
        "runs": runs,
        "seconds": time.perf_counter() - start,
        "different_results": [len(each) for each in found],
        "gpu_growth_bytes": None if before[0] is None else after_less(after[0], before[0]),
        "host_growth_bytes": after[1] - before[1],
    }
    return result | {"problems": problems(result, found)}


def problems(result: dict[str, Any], found: list[set[str]]) -> list[str]:
    """What is wrong with the runs, in words."""
    said = []
    if max(result["different_results"]) > 1:
        said.append(f"{max(result['different_results'])} different results of one input")
    if found[0] & found[1]:
        said.append("two inputs gave the same result: a run computed nothing")
    if (result["gpu_growth_bytes"] or 0) > MOST_GPU_BYTES:
        said.append(f"GPU memory grew by {result['gpu_growth_bytes']} bytes")
    if result["host_growth_bytes"] > MOST_HOST_BYTES:
        said.append(f"host memory grew by {result['host_growth_bytes']} bytes")
    return said


def loader(folder: Path) -> Any:
    """The module that the artifact carries."""
    spec = importlib.util.spec_from_file_location("load_model", folder / "load_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(specs: dict[str, tuple[tuple[int, ...], str]], seed: int) -> dict[str, Any]:
    """Random inputs; integers are small, as an index must be."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(shape).astype(dtype)
        if np.dtype(dtype).kind == "f"
        else (rng.integers(0, 2, shape).astype(dtype))
        for name, (shape, dtype) in specs.items()
    }


def digest(outputs: dict[str, Any]) -> str:
    """Of all bits."""
    whole = hashlib.sha256()
    for value in outputs.values():
        whole.update(np.ascontiguousarray(value).tobytes())
    return whole.hexdigest()


def memory(gpu: bool) -> tuple[int | None, int]:
    """Bytes in use: of the GPU, as its driver says, and of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    used = None
    if gpu:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        cuda = ctypes.CDLL("libcuda.so.1")
        if cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0:
            used = total.value - free.value
    return used, pages * 4096


def after_less(after: int | None, before: int) -> int | None:
    """The growth; None where it is not known."""
    return None if after is None else after - before


if __name__ == "__main__":
    sys.exit(main())
