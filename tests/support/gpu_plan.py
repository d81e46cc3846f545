"""Compiles the kernels of our CUDA schedule rules, and DLight's beside them, for a GPU elsewhere.

Both halves of `scripts/tir_kernels.py` draw the same inputs from a seed; this one needs TVM.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tir_kernels
import tvm
import tvm_ffi
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.tirx.build import codegen_build, split_host_device_mods

from support import gpu_functions
from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.compiler.codegen.shares import UNCHECKED
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.schedules import cuda
from tvmscope.compiler.schedules.apply import take
from tvmscope.compiler.schedules.cuda import gemm, tiles
from tvmscope.compiler.schedules.cuda.products import find_product
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.precision import Precision
from tvmscope.cuda.cubins.cubin import resources
from tvmscope.cuda.gpus import gpu_of
from tvmscope.models.folder import read_prepared
from tvmscope.models.prepare import prepare as prepare_model
from tvmscope.runtime import tvm_compat

Array = np.ndarray[Any, Any]
REFERENCE_MOST_FLOPS = 1.5e9


def prepare(arguments: argparse.Namespace) -> int:
    """Compile every kernel twice, and compute samples of its results."""
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
        label = (
            f"{tile.rows}x{tile.columns}x{tile.terms} w{down}x{across} s{tile.stages} p{tile.parts}"
        )
        yield (
            label,
            ScheduleRule(
                name="tir-gemm",
                devices=("cuda",),
                version=1,
                words=f"{tiles.estimate_us(work, tile, gpu):.2f}",
                schedule=lambda _, __, tile=tile: gemm.schedule_tile(product, tile),
            ),
        )


def kernels(func: Any, target: Any, arch: str) -> tuple[list[dict[str, Any]], bytes]:
    """Lower a scheduled function as TVM's build does; return its launches and its cubin."""
    named = func.with_attr("global_symbol", "main")
    with target, tvm.transform.PassContext(opt_level=3, config=UNCHECKED):
        module = tvm.tirx.transform.BindTarget(target)(tvm.IRModule({"main": named}))
        passes, _, finish = tvm.tirx.get_default_tir_pipeline(target)
        host, devices = split_host_device_mods(passes(module))
        ((device_target, device),) = devices.items()
        source = str(codegen_build(finish()(device), device_target).inspect_source())
    launches = list(launched(host["main"], device, func))
    cubin = nvcc(source, arch)

    for launch in launches:
        spent = resources(cubin, launch["name"])
        launch |= {"registers": spent.registers, "local_bytes": spent.local_bytes}
    return launches, cubin


def launched(host: Any, device: Any, func: Any) -> Iterator[dict[str, Any]]:
    """Return every launch in the host's code: kernel, arguments, grid, block, shared memory."""
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
        for a, p in zip(tir_kernels.inputs(parameters(func), seed), parameters(func), strict=False)
    ]
    out = parameters(func)[-1]
    dtype = "float32" if out["dtype"] == "bfloat16" else out["dtype"].replace("float16", "float32")
    tensors = [tvm.runtime.tensor(a) for a in (*given, np.zeros(out["shape"], dtype))]
    built["main"](*tensors)
    values = tensors[-1].numpy().reshape(-1)
    return values[tir_kernels.places(values.size, seed)]


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
