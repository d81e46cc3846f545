"""Checks and times the kernels of our CUDA schedule rules on a GPU, beside DLight's.

python scripts/tir_kernels.py prepare FOLDER [--models resnet50,vit_b_16] [--batches 1] [--odd 40]
python scripts/tir_kernels.py run FOLDER -o OUT

`prepare` needs TVM, nvcc and torch, and no GPU: it lowers the models' kernels without Triton, drawn
odd shapes besides, compiles each with the first rule of ours that takes it and with DLight's, and
computes some of the results on the CPU in float32. `run` needs numpy, the CUDA driver and no TVM.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(ROOT / "scripts"))

from cuda_odd import Memory, current_context, from_bytes, to_bytes  # noqa: E402

from tvmscope.cuda import driver  # noqa: E402

Array = np.ndarray[Any, Any]
SAMPLES = 4096
TOLERANCE = {"float32": 2e-3, "float16": 1e-2, "bfloat16": 5e-2}
"""Of the largest value; float32 results are of half-precision numbers, too."""
IN_A_GRAPH, GRAPHS = 20, 10


def main() -> int:
    """Prepare or run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parts = parser.add_subparsers(required=True)
    prepared = parts.add_parser("prepare")
    prepared.add_argument("folder", type=Path)
    prepared.add_argument("--models", default="resnet50,mobilenet_v2,vit_b_16")
    prepared.add_argument("--batches", default="1")
    prepared.add_argument("--odd", type=int, default=40)
    prepared.add_argument("--tiles", type=int, default=0, help="other tiles of each product")
    prepared.add_argument("--target", default="cuda:sm_90")
    prepared.set_defaults(do=prepare)
    ran = parts.add_parser("run")
    ran.add_argument("folder", type=Path)
    ran.add_argument("-o", "--output", type=Path)
    ran.set_defaults(do=run)
    arguments = parser.parse_args()
    return int(arguments.do(arguments))


def prepare(arguments: argparse.Namespace) -> int:
    """Compile every kernel here, for a GPU elsewhere."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support import gpu_plan

    return gpu_plan.prepare(arguments)


# ---- both ------------------------------------------------------------------------------------


def inputs(params: Sequence[dict[str, Any]], seed: int) -> list[Array]:
    """Draw all but the last parameter; half-precision numbers are rounded as they will be."""
    rng = np.random.default_rng(seed)
    drawn = []
    for p in params[:-1]:
        shape, dtype = tuple(p["shape"]), p["dtype"]
        if "float" in dtype:
            values = (rng.standard_normal(shape) / 4).astype(np.float32)
            values = from_bytes(to_bytes(values, dtype), dtype).reshape(shape)
            drawn.append(values if dtype == "bfloat16" else values.astype(dtype))
        else:
            drawn.append(rng.integers(0, 2, shape).astype(dtype))
    return drawn


def places(size: int, seed: int) -> Array:
    """Return where results are compared: everywhere, or at drawn places and both ends."""
    if size <= SAMPLES:
        return np.arange(size)
    drawn = np.random.default_rng(seed).integers(0, size, SAMPLES - 128)
    return np.concatenate([np.arange(64), drawn, np.arange(size - 64, size)])


# ---- run -------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> int:
    """Check and time every kernel."""
    current_context()
    entries = json.loads((arguments.folder / "plan.json").read_text())
    with tarfile.open(arguments.folder / "kernels.tar.xz") as archive:
        files = {m.name: read(archive, m) for m in archive.getmembers()}
    results, wrong = [], 0
    for number, entry in enumerate(entries):
        result: dict[str, Any] = {"label": entry["label"], "calls": entry["calls"]}
        wanted = files.get(f"{number}.npy")
        expected = None if wanted is None else np.load(io.BytesIO(wanted))
        for side, made in entry["sides"].items():
            result[side] = one(entry, side, made, files.get(f"{number}.{side}.cubin"), expected)
            wrong += bool(result[side].get("problem")) and side == "ours"
        results.append(result)
        print(line(result), flush=True)
    print("\n".join(totals(results)))
    print(f"{len(results)} functions, {wrong} wrong kernels of ours")
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1))
    return 1 if wrong else 0


def read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """A file's bytes."""
    file = archive.extractfile(member)
    return b"" if file is None else file.read()


def one(
    entry: dict[str, Any],
    side: str,
    made: dict[str, Any],
    cubin: bytes | None,
    wanted: Array | None,
) -> dict[str, Any]:
    """Run one side's kernels of a function: their error and their time."""
    result = {k: made[k] for k in ("rule", "error", "estimate_us") if k in made}
    if cubin is None:
        return result
    params = entry["params"]
    with Memory() as memory:
        for p, values in zip(params, inputs(params, entry["seed"]), strict=False):
            data = to_bytes(values, p["dtype"])
            memory.allocate(p["name"], max(16, len(data)))
            memory.write(p["name"], data)
        out = params[-1]
        size = int(np.prod(out["shape"])) * item_bytes(out["dtype"])
        memory.allocate(out["name"], max(16, size))
        memory.fill(out["name"], size, 0xFF)
        for launch in made["launches"]:
            for name, count in launch["workspaces"].items():
                if name not in memory.places:
                    memory.allocate(name, count)
                    memory.fill(name, count, 0xFF)
        steps = []
        for launch in made["launches"]:
            kernel = driver.Kernel(
                cubin, launch["name"], grid=tuple(launch["grid"]), threads=tuple(launch["block"]),
                shared_bytes=launch["shared_bytes"],
            )  # fmt: skip
            steps.append((kernel, [memory[name] for name in launch["arguments"]]))
        for kernel, pointers in steps:
            kernel.launch(pointers)
        first = memory.read(out["name"], size)
        if problem := judged(first, out, wanted, entry["seed"]):
            result["problem"] = problem
        result["us"] = timed(steps)
        if memory.read(out["name"], size) != first:
            result["problem"] = "runs gave different bits"
        for kernel, _ in steps:
            kernel.close()
    result["spilled"] = max(launch["local_bytes"] for launch in made["launches"])
    return result


def item_bytes(dtype: str) -> int:
    """The bytes of an element."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def judged(data: bytes, out: dict[str, Any], wanted: Array | None, seed: int) -> str:
    """What is wrong with a result; empty where nothing is, or nothing is known."""
    dtype = out["dtype"]
    values = from_bytes(data, dtype) if "float" in dtype else np.frombuffer(data, dtype)
    if "float" in dtype and not np.isfinite(values).all():
        return f"{np.count_nonzero(~np.isfinite(values))} of {values.size} are not finite"
    if wanted is None:
        return ""
    found = values[places(values.size, seed)].astype(np.float64)
    error = np.abs(found - wanted.astype(np.float64)).max() / max(1e-6, np.abs(wanted).max())
    return "" if error <= TOLERANCE.get(dtype, 0.0) else f"error {error:.2e}"


def timed(steps: Sequence[tuple[driver.Kernel, list[int]]]) -> float:
    """Return microseconds of one run, in a CUDA graph of many."""
    stream, graph, ready = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    begin, end = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuStreamCreate", ctypes.byref(stream), 1)
    driver.call("cuCtxSynchronize")
    driver.call("cuStreamBeginCapture_v2", stream, 2)
    for _ in range(IN_A_GRAPH):
        for kernel, pointers in steps:
            kernel.launch(pointers, int(stream.value or 0))
    driver.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    driver.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
    for event in (begin, end):
        driver.call("cuEventCreate", ctypes.byref(event), 0)
    launch = partial(driver.call, "cuGraphLaunch", ready, stream)
    launch()
    times = []
    for _ in range(3):
        driver.call("cuEventRecord", begin, stream)
        for _ in range(GRAPHS):
            launch()
        driver.call("cuEventRecord", end, stream)
        driver.call("cuEventSynchronize", end)
        spent = ctypes.c_float()
        driver.call("cuEventElapsedTime", ctypes.byref(spent), begin, end)
        times.append(spent.value * 1e3 / GRAPHS / IN_A_GRAPH)
    for event in (begin, end):
        driver.call("cuEventDestroy_v2", event)
    driver.call("cuGraphExecDestroy", ready)
    driver.call("cuGraphDestroy", graph)
    driver.call("cuStreamDestroy_v2", stream)
    return min(times)


def line(result: dict[str, Any]) -> str:
    """One function's results."""
    parts = [f"{result['label']} x{result['calls']}:"]
    for side in ("ours", "dlight"):
        each = result[side]
        us = f"{each['us']:.2f} us" if "us" in each else each.get("error", "")[:80]
        problem = f" WRONG: {each['problem']}" if "problem" in each else ""
        spilled = f" spills {each['spilled']}" if each.get("spilled") else ""
        parts.append(f"{each.get('rule', side)} {us}{problem}{spilled};")
    tried = {k: v for k, v in result.items() if isinstance(v, dict) and "us" in v and " p" in k}
    for name in sorted(tried, key=lambda name: float(tried[name]["us"])):
        each = tried[name]
        problem = " WRONG" if "problem" in each else ""
        parts.append(f"\n    {name}: {each['us']:.2f} us, model {each['estimate_us']}{problem}")
    return " ".join(parts)


def totals(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return the sums of each model's kernels."""
    models = dict.fromkeys(" ".join(r["label"].split()[:2]) for r in results if r["calls"])
    for model in models:
        mine = [r for r in results if r["label"].startswith(model + " ")]
        theirs = sum(r["calls"] * r["dlight"].get("us", 0.0) for r in mine)
        best = sum(r["calls"] * r["ours"].get("us", r["dlight"].get("us", 0.0)) for r in mine)
        yield f"{model}: {best:.0f} us with our rules first, {theirs:.0f} us with DLight's alone"


if __name__ == "__main__":
    sys.exit(main())
