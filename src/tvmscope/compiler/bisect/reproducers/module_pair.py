"""Runs one computation as TVM modules before and after a pass, on the same inputs.

Ends with 1 while the two differ. Beside it: before.json and after.json (TVM's JSON), the same as
text to read (.txt), inputs.npz, and meta.json (target, tolerance, the passes that finish both).
"""

import json
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm import relax

HERE = Path(__file__).resolve().parent
META = json.loads((HERE / "meta.json").read_text())


def run(name: str) -> list[np.ndarray]:
    module = tvm.ir.load_json((HERE / f"{name}.json").read_text())
    target = tvm.target.Target(META["target"], host=META["target"])
    with target, tvm.transform.PassContext(opt_level=3):
        for finish in META["finish"][name]:
            module = getattr(relax.transform, finish)()(module)
        executable = relax.build(module, target, relax_pipeline=None)
    machine = relax.VirtualMachine(executable, tvm.cpu())
    with np.load(HERE / "inputs.npz") as given:
        inputs = [tvm.runtime.tensor(given[key]) for key in META["inputs"]]
    result = machine["main"](*inputs)
    return [x.numpy() for x in ([result] if hasattr(result, "numpy") else result)]


def compare(before: np.ndarray, after: np.ndarray) -> float:
    """Return the largest difference relative to the largest value; NaN if only one has a NaN."""
    scale = float(np.abs(before[np.isfinite(before)]).max(initial=0)) or 1.0
    with np.errstate(invalid="ignore"):
        gap = np.abs(after.astype("float64") - before.astype("float64"))
    gap[(before == after) | (np.isnan(before) & np.isnan(after))] = 0
    return float(gap.max(initial=0)) / scale


if __name__ == "__main__":
    errors = [compare(a, b) for a, b in zip(run("before"), run("after"), strict=True)]
    wrong = [e for e in errors if not e <= META["tolerance"]]
    print(f"{META['what']}: max|after-before| / max|before| is {errors}")
    print("DIFFERENT" if wrong else "the same", f"(tolerance {META['tolerance']:g})")
    sys.exit(1 if wrong else 0)
