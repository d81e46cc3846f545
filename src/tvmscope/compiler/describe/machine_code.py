"""The resources that generated GPU kernels use, and whether they use the tensor cores.

Registers and spills are read from the cubin, matrix instructions from the PTX from which it was
made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tvmscope.core.profile import KernelIR, Loop, MachineCode
from tvmscope.core.target import Target
from tvmscope.cuda import no_matrix
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.gpus import Gpu, gpu_with

_WARP = 32
_SM_REGISTERS = 65536
_REGISTERS_STEP = 256
"""A warp's registers are allocated in steps of this size."""
_RESERVED_SHARED = 1024
"""Shared memory that the system reserves per block (since sm_80)."""


def with_code(
    kernels: Iterable[KernelIR], generated: Iterable[CompiledKernel], target: Target
) -> tuple[KernelIR, ...]:
    """Return the descriptions; those of generated kernels include their machine code."""
    compiled = {kernel.unit_key: kernel for kernel in generated}
    return tuple(
        _described(kernel, compiled[kernel.workload], target.attrs)
        if kernel.workload in compiled
        else kernel
        for kernel in kernels
    )


def _described(kernel: KernelIR, compiled: CompiledKernel, attrs: Mapping[str, int]) -> KernelIR:
    code = _code(compiled, gpu_with(compiled.arch, attrs))
    lines = (Loop(text=line) for line in _lines(code))
    (unit,) = kernel.tree
    return replace(kernel, code=code, tree=(replace(unit, body=(*unit.body, *lines)),))


def _code(kernel: CompiledKernel, gpu: Gpu) -> MachineCode:
    return MachineCode(
        symbol=kernel.name,
        template=kernel.config.template,
        threads=kernel.threads,
        blocks=kernel.grid[0] * kernel.grid[1] * kernel.grid[2],
        registers=kernel.registers,
        shared_bytes=kernel.shared_bytes,
        spilled_bytes=kernel.local_bytes,
        resident=resident(kernel.registers, kernel.shared_bytes, kernel.threads, gpu),
        multiprocessors=gpu.sms,
        sm_warps=gpu.sm_warps,
        matrix=kernel.matrix,
    )


def resident(registers: int, shared_bytes: int, threads: int, gpu: Gpu) -> int:
    """Return how many blocks fit a multiprocessor, by registers, shared memory and warps."""
    warps = -(-threads // _WARP)
    per_warp = -(-registers * _WARP // _REGISTERS_STEP) * _REGISTERS_STEP
    limits = (
        _SM_REGISTERS // (per_warp * warps) if registers else gpu.sm_blocks,
        gpu.sm_shared_bytes // (shared_bytes + _RESERVED_SHARED),
        gpu.sm_warps // warps,
        gpu.sm_blocks,
    )
    return min(limits)


def _lines(code: MachineCode) -> list[str]:
    fits = f", {code.resident} fit a multiprocessor" if code.resident is not None else ""
    spills = f"{code.spilled_bytes} bytes spilled" if code.spilled_bytes else "no spills"
    matrix = f"{code.matrix} on tensor cores" if code.matrix else "no matrix instructions"
    if code.matrix is None and (why := no_matrix.reason(code.template)):
        matrix = f"no matrix instructions: {why}"
    return [
        f"{code.blocks} blocks of {code.threads} threads{fits}",
        f"{code.registers} registers, {code.shared_bytes / 1024:g} KiB shared memory, {spills}",
        matrix,
    ]
