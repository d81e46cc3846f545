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
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "scripts"))

from cuda_odd import Memory, current_context, from_bytes, to_bytes  # noqa: E402

from tvmscope.cuda import driver  # noqa: E402

if TYPE_CHECKING:
    import tvm

Array = np.ndarray[Any, Any]
SAMPLES = 4096
REFERENCE_MOST_FLOPS = 1.5e9
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


# ---- prepare ---------------------------------------------------------------------------------


def prepare(arguments: argparse.Namespace) -> int:
    """Compile every kernel twice, and compute samples of its results."""
    from tvmscope.compiler import targets

    target = targets.resolve(arguments.target)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    entries = []
    with tarfile.open(arguments.folder / "kernels.tar.xz", "w:xz", preset=6) as archive:
        for number, (label, calls, func) in enumerate(functions(arguments, target)):
            started = time.perf_counter()
            tiles = arguments.tiles if calls else 0
            entry = compiled(f"{number}", func, target, archive, tiles)
            entry |= {"label": label, "calls": calls, "seed": number}
            entry |= {"params": parameters(func)}
            wanted = reference(func, number)
            if wanted is not None:
                add(archive, f"{number}.npy", saved(wanted))
            entries.append(entry)
            rules = {k: v.get("rule", v.get("error")) for k, v in entry["sides"].items()}
            print(f"{label} x{calls}: {rules} {time.perf_counter() - started:.1f} s", flush=True)
    (arguments.folder / "plan.json").write_text(json.dumps(entries))
    size = sum(f.stat().st_size for f in arguments.folder.iterdir())
    print(f"{len(entries)} functions, {size / 1e6:.1f} MB")
    return 0


def functions(
    arguments: argparse.Namespace, target: Any
) -> Iterator[tuple[str, int, tvm.tirx.PrimFunc]]:
    """Return the models' kernels with how often each is called, and drawn ones."""
    from support import gpu_functions

    for name, func in gpu_functions.drawn(arguments.odd):
        yield f"odd {name}", 0, func
    for batch in (int(b) for b in arguments.batches.split(",")):
        for model in filter(None, arguments.models.split(",")):
            for name, calls, func in model_kernels(model, batch, target):
                yield f"{model} b{batch} {name}", calls, func


def model_kernels(
    model: str, batch: int, target: Any
) -> Iterator[tuple[str, int, tvm.tirx.PrimFunc]]:
    """Lower a model in float16 up to its schedules, as if there were no Triton."""
    import tvm

    from tvmscope.compiler import frontends, pipeline, targets
    from tvmscope.core.options import CompileOptions, LoadOptions
    from tvmscope.core.precision import Precision
    from tvmscope.models.folder import read_prepared
    from tvmscope.models.prepare import prepare as prepare_model

    with tempfile.TemporaryDirectory() as folder:
        options = LoadOptions(batch_size=batch, need_onnx=False, offline=True)
        prepare_model(model, Path(folder), options)
        imported = frontends.import_model(read_prepared(Path(folder)))
        tvm_target = tvm.target.Target(targets.to_tvm(target), host={"kind": "llvm"})
        lowered = pipeline.run(
            imported.module, target, tvm_target,
            CompileOptions(
                precision=Precision.parse("float16"), graph=True, disabled_passes=("place-units",)
            ),
            until="schedule",
        )  # fmt: skip
    calls = Counter(call.kernel for call in lowered.calls)
    for var, func in sorted(lowered.module.functions_items(), key=lambda f: f[0].name_hint):
        if isinstance(func, tvm.tirx.PrimFunc):
            yield var.name_hint, calls[var.name_hint], func


def compiled(
    name: str, func: Any, target: Any, archive: tarfile.TarFile, tiles: int
) -> dict[str, Any]:
    """Compile a function with our rules and with DLight's, and perhaps with other tiles."""
    import tvm

    from tvmscope.compiler import targets
    from tvmscope.compiler.schedules import cuda
    from tvmscope.compiler.schedules.apply import take
    from tvmscope.runtime import tvm_compat

    tvm_compat.import_tensor_intrinsics()
    theirs = [rule for rule in cuda.RULES if rule.name.startswith("dlight")]
    ours = [rule for rule in cuda.RULES if rule not in theirs]
    tvm_target = tvm.target.Target(targets.to_tvm(target), host={"kind": "llvm"})
    sides: dict[str, Any] = {}
    others = {label: [rule] for label, rule in other_tiles(func, target, tiles)}
    for side, offered in {"ours": ours, "dlight": theirs, **others}.items():
        remarks: list[str] = []
        with tvm_target:
            found = take(offered, func, name, target, remarks)
        if found is None:
            sides[side] = {"error": "; ".join(map(str, remarks)) or "no rule"}
            continue
        rule, sch = found
        try:
            launches, cubin = kernels(sch.mod["main"], tvm_target, target.arch)
        except Exception as e:  # a kernel that does not compile is a result, too
            sides[side] = {"rule": rule, "error": str(e)[-300:]}
            continue
        add(archive, f"{name}.{side}.cubin", cubin)
        remarked = {"remarks": [str(r) for r in remarks]} if remarks else {}
        sides[side] = {"rule": rule, "launches": launches, **remarked}
        if side in others:
            sides[side]["estimate_us"] = float(others[side][0].words)
    return {"sides": sides}


def other_tiles(func: Any, target: Any, count: int) -> Iterator[tuple[str, Any]]:
    """Return rules that give a product other tiles, those first that the model finds good."""
    from tvmscope.compiler.manifest.rule import ScheduleRule
    from tvmscope.compiler.schedules.cuda import gemm, tiles
    from tvmscope.compiler.schedules.cuda.products import find_product
    from tvmscope.cuda.gpus import gpu_of

    product = find_product(func) if count else None
    if product is None or product.dtype != "float16":
        return
    work, gpu = gemm.work_of(product), gpu_of(target.arch)
    ranked = sorted(tiles.legal(work, gpu), key=lambda tile: tiles.estimate_us(work, tile, gpu))
    seen = Counter[tuple[int, int]]()
    for tile in ranked:
        seen[tile.rows, tile.columns] += 1
        if seen[tile.rows, tile.columns] > count:
            continue
        down, across = tile.warps
        label = f"{tile.rows}x{tile.columns}x{tile.terms} w{down}x{across} s{tile.stages} p{tile.parts}"
        yield label, ScheduleRule(
            name="tir-gemm",
            devices=("cuda",),
            version=1,
            words=f"{tiles.estimate_us(work, tile, gpu):.2f}",
            schedule=lambda _, __, tile=tile: gemm.schedule_tile(product, tile),
        )


def kernels(func: Any, target: Any, arch: str) -> tuple[list[dict[str, Any]], bytes]:
    """Lower a scheduled function as TVM's build does; return its launches and its cubin."""
    import tvm
    from tvm.tirx.build import codegen_build, split_host_device_mods

    from tvmscope.compiler.codegen.shares import UNCHECKED

    named = func.with_attr("global_symbol", "main")
    with target, tvm.transform.PassContext(opt_level=3, config=UNCHECKED):
        module = tvm.tirx.transform.BindTarget(target)(tvm.IRModule({"main": named}))
        passes, _, finish = tvm.tirx.get_default_tir_pipeline(target)
        host, devices = split_host_device_mods(passes(module))
        ((device_target, device),) = devices.items()
        source = str(codegen_build(finish()(device), device_target).inspect_source())
    launches = list(launched(host["main"], device, func))
    cubin = nvcc(source, arch)
    from tvmscope.cuda.cubins.cubin import resources

    for launch in launches:
        spent = resources(cubin, launch["name"])
        launch |= {"registers": spent.registers, "local_bytes": spent.local_bytes}
    return launches, cubin


def launched(host: Any, device: Any, func: Any) -> Iterator[dict[str, Any]]:
    """Return every launch in the host's code: kernel, arguments, grid, block, shared memory."""
    import tvm
    import tvm_ffi

    calls = list[Any]()

    def note(call: Any) -> None:
        if str(getattr(call.op, "name", "")).endswith("call_ffi_kernel"):
            calls.append(call)

    tvm_ffi.structural_walk(host.body, (tvm.ir.Call, note))
    sizes = workspaces(func)
    for call in calls:
        name = str(call.args[0].value)
        kernel = device[name]
        tags = [str(t) for t in kernel.attrs["tirx.kernel_launch_params"]]
        values = [int(v) for v in call.args[1 + len(kernel.params) :]]
        found = dict(zip(tags, values, strict=True))
        arguments = [str(p.name).removesuffix("_ptr") for p in kernel.params]
        yield {
            "name": name,
            "arguments": arguments,
            "grid": [found.get(f"blockIdx.{a}", 1) for a in "xyz"],
            "block": [found.get(f"threadIdx.{a}", 1) for a in "xyz"],
            "shared_bytes": found.get("tirx.use_dyn_shared_memory", 0),
            "workspaces": {a: sizes[a] for a in arguments if a in sizes},
        }


def workspaces(func: Any) -> dict[str, int]:
    """Return the bytes of what a function allocates in the device's memory."""
    return {
        str(b.name): int(np.prod([int(d) for d in b.shape])) * int(b.dtype.bits) // 8
        for b in func.body.block.alloc_buffers
    }


def nvcc(source: str, arch: str) -> bytes:
    """Compile CUDA source as TVM does."""
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder) / "k.cu", Path(folder) / "k.cubin"
        file.write_text(source)
        command = ["nvcc", "-w", "-O3", f"-arch={arch}", "-cubin", "-o", str(output), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-300:])
        return output.read_bytes()


def parameters(func: Any) -> list[dict[str, Any]]:
    """Return name, shape and type of each parameter; the function writes the last."""
    return [
        {"name": str(p.name), "shape": [int(d) for d in p.ty.shape], "dtype": str(p.ty.dtype)}
        for p in func.params
    ]


def reference(func: Any, seed: int) -> Array | None:
    """Return samples of the result in float32 arithmetic; None if that would take long."""
    import tvm
    from tvm.s_tir.analysis import estimate_tir_flops

    try:
        flops = float(estimate_tir_flops(tvm.IRModule({"main": func})))
    except Exception:  # not every function can be counted; such are small
        flops = 0.0
    if flops > REFERENCE_MOST_FLOPS:
        return None
    text = tvm.ir.save_json(func.with_attr("global_symbol", "main"))
    for half in ("float16", "bfloat16"):
        text = text.replace(f'"{half}"', '"float32"')
    built = tvm.tirx.build(tvm.IRModule({"main": tvm.ir.load_json(text)}), target={"kind": "llvm"})
    given = [
        widened(a, p)
        for a, p in zip(inputs(parameters(func), seed), parameters(func), strict=False)
    ]
    out = parameters(func)[-1]
    dtype = "float32" if out["dtype"] == "bfloat16" else out["dtype"].replace("float16", "float32")
    tensors = [tvm.runtime.tensor(a) for a in (*given, np.zeros(out["shape"], dtype))]
    built["main"](*tensors)
    values = tensors[-1].numpy().reshape(-1)
    return values[places(values.size, seed)]


def widened(values: Array, param: dict[str, Any]) -> Array:
    """Half precision as float32."""
    return values.astype(np.float32) if "float16" in param["dtype"] else values


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def saved(values: Array) -> bytes:
    """An array as a file."""
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


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
