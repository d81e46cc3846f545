"""Graphs of one expression, through the pipeline and on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvmscope.compiler import pipeline, targets
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target

Array = np.ndarray[Any, Any]
Make = Callable[..., relax.Expr]


def lowered(target: Target, make: Make, *inputs: Array, **options: Any) -> pipeline.Lowered:
    """A graph of one expression, made from one variable for each input, through the pipeline."""
    builder = relax.BlockBuilder()
    types = [relax.TensorType(a.shape, str(a.dtype)) for a in inputs]
    params = [relax.Var(f"x{n}", t) for n, t in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    made = tvm.target.Target(targets.to_tvm(target))
    return pipeline.run(builder.get(), target, made, CompileOptions(**options))


def compiled(
    target: Target, make: Make, *inputs: Array, **options: Any
) -> Callable[..., list[Array]]:
    """The graph as a function that runs on the target's device, which has to be here."""
    module = lowered(target, make, *inputs, **options).module
    built = relax.build(module, tvm.target.Target(targets.to_tvm(target)), relax_pipeline=None)
    device = tvm.cuda() if target.device == "cuda" else tvm.cpu()
    machine = relax.VirtualMachine(built, device)

    def run(*arrays: Array) -> list[Array]:
        found = machine["main"](*(tvm.runtime.tensor(a, device) for a in arrays))
        return [found.numpy()] if hasattr(found, "numpy") else [f.numpy() for f in found]

    return run


def results(target: Target, make: Make, *inputs: Array, **options: Any) -> list[Array]:
    """What the graph computes of the inputs."""
    return compiled(target, make, *inputs, **options)(*inputs)
