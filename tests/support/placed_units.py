"""Programs with placed CUDA units on the CPU: each unit is computed by its numpy reference."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

import numpy as np
import torch
import tvm
import tvm_ffi
from tvm import relax, tirx

from tvmscope.compiler import pipeline, targets
from tvmscope.compiler.frontends.torch import importer
from tvmscope.compiler.units import emit
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16, FLOAT32, TF32, Precision
from tvmscope.cuda.config import Config
from tvmscope.cuda.reference import norm_sum, output_values, reference
from tvmscope.cuda.units import Conv2d, Norm, Tensor, Unit

GPU = "cuda:sm_90"
TOLERANCE = {FLOAT32: 1e-5, TF32: 1e-5, FLOAT16: 1e-2}
Array = np.ndarray[Any, Any]


def lowered(module: tvm.IRModule, options: CompileOptions) -> pipeline.Lowered:
    """The module through our CUDA passes, up to its kernels."""
    gpu = targets.resolve(GPU)
    made = tvm.target.Target(targets.to_tvm(gpu), host={"kind": "llvm"})
    return pipeline.run(module, gpu, made, options, until="schedule")


def placed(module: tvm.IRModule) -> list[Unit]:
    """The units that a lowered module launches."""
    functions = (f for _, f in module.functions_items() if isinstance(f, tirx.PrimFunc))
    return [found[0] for f in functions if (found := emit.read(f)) is not None]


def run(module: tvm.IRModule, *inputs: Array) -> list[Array]:
    """What a lowered module computes, on this machine."""
    for var, func in list(module.functions_items()):
        found = emit.read(func) if isinstance(func, tirx.PrimFunc) else None
        if found is None:
            continue
        name = f"test.unit.{var.name_hint}"
        _register(name, *found)
        launch = emit.Launch(
            name=name, threads=1, grid=(1, 1, 1), shared_bytes=0, hidden_pointers=0
        )
        module.update_func(var, emit.function(*found, emit.shapes_of(func), launch))
    rx = relax.transform
    steps = [
        rx.RewriteDataflowReshape(), rx.ToNonDataflow(), rx.RemovePurityChecking(),
        rx.CallTIRRewrite(), rx.StaticPlanBlockMemory(), rx.LowerAllocTensor(),
        rx.KillAfterLastUse(),
        rx.LowerRuntimeBuiltin(), rx.ComputePrimValue(), rx.VMShapeLower(), rx.AttachGlobalSymbol(),
    ]  # fmt: skip
    cpu = tvm.target.Target({"kind": "llvm"})
    with cpu, tvm.transform.PassContext(opt_level=3):
        built = relax.build(tvm.transform.Sequential(steps)(module), cpu, relax_pipeline=None)
    machine = relax.VirtualMachine(built, tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(x, tvm.cpu()) for x in inputs))
    return [result.numpy()] if hasattr(result, "numpy") else [r.numpy() for r in result]


def _register(name: str, unit: Unit, config: Config) -> None:
    tensors = emit.arguments(unit, config)

    def compute(*pointers: Any) -> None:
        given = {
            t.role: _view(p, t) for p, t in zip(pointers, tensors, strict=False)
        }  # launch sizes follow
        if "weight" in given:
            given["weight"] = _unpacked(unit, config, given["weight"])
        out = output_values(unit, given["output"])
        out[...] = reference(unit, given).reshape(out.shape)
        if isinstance(unit, Norm) and unit.keep_sum:
            given["sum"][...] = norm_sum(unit, given).reshape(given["sum"].shape)

    tvm_ffi.register_global_func(name, compute, override=True)


def _view(pointer: Any, tensor: Tensor) -> Array:
    address = pointer.value if hasattr(pointer, "value") else int(pointer)
    memory = (ctypes.c_char * tensor.size_bytes).from_address(address)
    return np.frombuffer(memory, tensor.dtype).reshape(tensor.shape)


def _unpacked(unit: Unit, config: Config, weight: Array) -> Array:
    tensor = unit.tensor("weight")
    assert tensor is not None
    rows = tensor.shape[0] if isinstance(unit, Conv2d) else tensor.shape[1]
    flat = weight.reshape(-1)
    n_by_k = flat.reshape(rows, -1) if config.layout == "nk" else flat.reshape(-1, rows).T
    return (n_by_k if isinstance(unit, Conv2d) else n_by_k.T).reshape(tensor.shape)


def launches(module: tvm.IRModule) -> tuple[Counter[str], Counter[str]]:
    """The launches of one run of a lowered module: of units by kind, of other kernels by name."""
    module = relax.transform.RewriteDataflowReshape()(module)
    units: Counter[str] = Counter()
    others: Counter[str] = Counter()

    def visit(node: Any) -> None:
        if not isinstance(node, relax.Call) or node.op != tvm.ir.Op.get("relax.call_tir"):
            return
        func = module[node.args[0]]
        assert isinstance(func, tirx.PrimFunc)
        found = emit.read(func)
        if found is None:
            others[node.args[0].name_hint.rstrip("0123456789")] += 1
        else:
            units[found[0].kind] += 1

    relax.analysis.post_order_visit(module["main"], visit)
    return units, others


def lowered_torch(
    block: torch.nn.Module, precision: Precision, *inputs: torch.Tensor
) -> tvm.IRModule:
    """A PyTorch module through our CUDA passes, up to its kernels."""
    program = torch.export.export(block.eval(), inputs)
    module = importer.translate(importer.decomposed(program), "m").module
    return lowered(module, CompileOptions(precision=precision)).module


def of_torch(
    block: torch.nn.Module, precision: Precision, *inputs: torch.Tensor
) -> tuple[list[Unit], list[str]]:
    """The units of a PyTorch module, whose results are compared with PyTorch's, and the names of
    its other kernels."""
    made = lowered_torch(block, precision, *inputs)
    outputs = block(*inputs)
    wanted = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    for found, tensor in zip(run(made, *(x.numpy() for x in inputs)), wanted, strict=True):
        right = tensor.detach().numpy()
        assert found.shape == right.shape
        assert np.abs(found - right).max() / np.abs(right).max() < TOLERANCE[precision]
    functions = ((v.name_hint, f) for v, f in made.functions_items())
    others = [n for n, f in functions if isinstance(f, tirx.PrimFunc) and emit.read(f) is None]
    return placed(made), others
