"""Compiles the kernels of all placed units, and lets their functions launch them.

Kernels compile in separate processes, several at once, without a GPU. A kernel that cannot be
compiled ends the build with its reason: its unit was chosen because it compiles. A unit that a
library computes has nothing to compile: its function makes the library's call.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import tvm
from tvm import tirx

from tvmscope.compiler.units import emit
from tvmscope.cuda.config import Config
from tvmscope.cuda.cubins.compile_pool import Failure, Job, compile_many
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.library.call import LibraryCall, call_of
from tvmscope.cuda.units import Unit
from tvmscope.errors import BuildError
from tvmscope.messages import msg


def compile_units(
    arch: str,
    kernels: dict[str, CompiledKernel],
    calls: dict[str, LibraryCall],
    portable: str | None = None,
) -> tvm.transform.Pass:
    """Return the pass; `kernels` receives the compiled kernels, by the packed function that
    launches each, and `calls` the library calls."""

    @tvm.transform.module_pass(opt_level=0, name="CompileUnits")
    def transform(module: tvm.IRModule, _: Any) -> tvm.IRModule:
        placed: dict[tvm.ir.GlobalVar, tuple[tirx.PrimFunc, Unit, Config]] = {}
        for var, func in module.functions_items():
            if isinstance(func, tirx.PrimFunc) and (found := emit.read(func)) is not None:
                placed[var] = (func, *found)
        for var, (func, unit, config) in list(placed.items()):
            if config.of_library:
                del placed[var]
                module.update_func(var, _calling(func, unit, config, calls))
        jobs = {(unit, config): Job(unit=unit, config=config, arch=arch, portable=portable)
                for _, unit, config in placed.values()}  # fmt: skip
        outcomes = dict(zip(jobs, compile_many(list(jobs.values())), strict=True))
        for var, (func, unit, config) in placed.items():
            outcome = outcomes[unit, config]
            if isinstance(outcome, Failure):
                raise BuildError(
                    msg(
                        "{unit}: its kernel cannot be compiled: {reason}",
                        unit=unit.label,
                        reason=outcome.reason,
                    )
                )
            name = packed_name(outcome)
            kernels[name] = outcome
            shapes = emit.shapes_of(func)
            module.update_func(var, emit.function(unit, config, shapes, _launch(name, outcome)))
        return module

    return transform


def _calling(
    func: tirx.PrimFunc, unit: Unit, config: Config, calls: dict[str, LibraryCall]
) -> tirx.PrimFunc:
    """Return the function that calls a library."""
    call = call_of(unit, config)
    text = json.dumps(call.to_json(), sort_keys=True)
    name = f"tvmscope.library.{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    calls[name] = call
    launch = emit.Launch(name=name, threads=0, grid=(0, 0, 0), shared_bytes=0, hidden_pointers=0)
    return emit.function(unit, config, emit.shapes_of(func), launch)


def packed_name(kernel: CompiledKernel) -> str:
    """Return the kernel's name: the same code has the same name, in every artifact."""
    return f"tvmscope.cuda.{hashlib.sha256(kernel.cubin).hexdigest()[:24]}"


def _launch(name: str, kernel: CompiledKernel) -> emit.Launch:
    return emit.Launch(
        name=name,
        threads=kernel.threads,
        grid=kernel.grid,
        shared_bytes=kernel.shared_bytes,
        hidden_pointers=kernel.hidden_pointers,
    )
