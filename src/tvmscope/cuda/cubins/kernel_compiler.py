"""Compiles a unit's kernel to a cubin with Triton; needs no GPU and no driver."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvmscope.cuda.binding import PARAMETERS, Binding, bind
from tvmscope.cuda.config import Config
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.cubins.cubin import resources
from tvmscope.cuda.gpus import gpu_of
from tvmscope.cuda.units import Unit
from tvmscope.errors import BackendUnavailable, BuildError, UsageError, one_line
from tvmscope.messages import msg

OLDEST_TRITON = (3, 6)
"""From this version on, kernels end with two hidden pointers to scratch memory."""
HIDDEN_POINTERS = 2
_POINTERS = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "int32": "*i32"}


def compile_kernel(
    unit: Unit, config: Config, arch: str, portable: str | None = None
) -> CompiledKernel:
    """Compile the kernel of `unit` by `config` for `arch` (`sm_90`); raise `BuildError` on failure.

    `portable` is an older architecture: the kernel is generated for that one, like code that must
    run on several, and then assembled for `arch`.
    """
    gpu, binding = gpu_of(arch), bind(unit, config)
    if config.pdl and not gpu.has_dependent_launch:
        raise BuildError(
            msg(
                "{config}: {arch} has no programmatic dependent launch",
                config=config.label,
                arch=arch,
            )
        )
    name = _name(unit, config)
    with tempfile.TemporaryDirectory() as cache:
        capability = gpu_of(portable or arch).capability
        compiled = _triton_compile(name, binding, config, capability, cache)
    meta, cubin = compiled.metadata, compiled.asm["cubin"]
    if portable is not None:
        cubin = _assemble(compiled.asm["ptx"], arch)
    scratch = int(getattr(meta, "global_scratch_size", 0) or 0)
    given = [t.size_bytes for t in binding.arguments if t.role == "scratch"]
    if scratch * math.prod(binding.grid) > sum(given):
        raise BuildError(
            msg(
                "{config}: the kernel wants {scratch} bytes of scratch memory",
                config=config.label,
                scratch=scratch,
            )
        )
    if getattr(meta, "profile_scratch_size", 0):
        raise BuildError(
            msg("{config}: the kernel was compiled for a profiler", config=config.label)
        )
    if meta.num_ctas != 1:
        raise BuildError(msg("{config}: clusters are not launched", config=config.label))
    if meta.shared > gpu.block_shared_bytes:
        raise BuildError(
            msg(
                "{config}: {shared} bytes of shared memory, {arch} has {block_shared_bytes}",
                config=config.label,
                shared=meta.shared,
                arch=gpu.arch,
                block_shared_bytes=gpu.block_shared_bytes,
            )
        )
    pointers = len(re.findall(r"\.param\s+\.u64", _entry(compiled.asm["ptx"])))
    own = len(binding.arguments) - len(given)
    if pointers != own + HIDDEN_POINTERS:
        raise BuildError(
            msg(
                "{config}: the kernel takes {pointers} pointers, not {count} + "
                "{hidden_pointers}: this Triton passes arguments otherwise",
                config=config.label,
                pointers=pointers,
                count=own,
                hidden_pointers=HIDDEN_POINTERS,
            )
        )
    if meta.name != name:
        raise BuildError(
            msg(
                "{config}: the kernel is called {found}, not {name}",
                config=config.label,
                found=meta.name,
                name=name,
            )
        )
    used = resources(cubin, meta.name)
    return CompiledKernel(
        unit_key=unit.key,
        config=config,
        arch=arch,
        name=meta.name,
        cubin=cubin,
        grid=binding.grid,
        threads=meta.num_warps * 32,
        shared_bytes=meta.shared,
        registers=used.registers,
        local_bytes=used.local_bytes,
        arguments=binding.arguments,
        hidden_pointers=HIDDEN_POINTERS - len(given),  # the first of them is to scratch memory
        triton=_version(),
        matrix=matrix_instruction(compiled.asm["ptx"]),
    )


def stages(unit: Unit, config: Config, arch: str, portable: str | None = None) -> Mapping[str, str]:
    """Return the kernel's stages of compilation: `triton` (source), `llvm`, `ptx`."""
    binding, capability = bind(unit, config), gpu_of(portable or arch).capability
    with tempfile.TemporaryDirectory() as cache:
        compiled = _triton_compile(_name(unit, config), binding, config, capability, cache)
    constants = "".join(f"# {k} = {v!r}\n" for k, v in sorted(binding.constants.items()))
    return {
        "triton": constants + inspect.getsource(_template(binding).fn),
        "llvm": str(compiled.asm["llir"]),
        "ptx": str(compiled.asm["ptx"]),
    }


def _name(unit: Unit, config: Config) -> str:
    """Return the kernel's name in the device's profiler."""
    return f"{config.template}_{unit.key.rpartition('-')[2]}_{config.slug}"


def _template(binding: Binding) -> Any:
    """Return the Triton function from which a unit's kernel is made."""
    module, _, template = binding.function.partition(":")
    return getattr(importlib.import_module(module), template)


def _assemble(ptx: str, arch: str) -> bytes:
    """Assemble PTX to machine code with the assembler that comes with Triton."""
    knobs: Any = importlib.import_module("triton.knobs")
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        command = [knobs.nvidia.ptxas.path, f"--gpu-name={arch}", str(source), "-o", str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(
                msg(
                    "ptxas cannot assemble the kernel for {arch}: {reason}",
                    arch=arch,
                    reason=done.stderr[-200:],
                )
            )
        return output.read_bytes()


def assembles(arch: str) -> bool:
    """Whether the assemblers that come with Triton know an architecture."""
    knobs: Any = importlib.import_module("triton.knobs")
    compiler: Any = importlib.import_module("triton.backends.nvidia.compiler")
    capability = gpu_of(arch).capability
    tool = knobs.nvidia.ptxas_blackwell if capability >= 100 else knobs.nvidia.ptxas
    name = compiler.sm_arch_from_capability(capability)
    command = [tool.path, f"--gpu-name={name}", "--version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def matrix_instruction(ptx: str) -> str | None:
    """Return the first matrix product in a kernel, by its kind and shape."""
    found = re.search(r"\b(wgmma|mma|tcgen05)\.(?:mma_async|sync|mma)\b[\w.:]*", ptx)
    if found is None:
        return None
    shape = re.search(r"\.(m\d+n\d+k\d+)", found.group())
    return f"{found.group(1)} {shape.group(1)}" if shape else found.group(1)


def _entry(ptx: str) -> str:
    """Return the declaration of the one kernel, with its parameters."""
    found = re.search(r"\.visible\s+\.entry[^(]*\(([^)]*)\)", ptx)
    if found is None:
        raise BuildError(msg("the generated PTX has no kernel"))
    return found.group(1)


def _version() -> str:
    try:
        triton: Any = importlib.import_module("triton")
    except ImportError as e:
        raise BackendUnavailable(
            msg("Triton is needed to compile CUDA kernels: pip install 'triton>=3.6'")
        ) from e
    version = str(triton.__version__)
    numbers = tuple(int(x) for x in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_TRITON:
        raise BackendUnavailable(
            msg("Triton {version} is too old: pip install 'triton>=3.6'", version=version)
        )
    return version


def _triton_compile(
    name: str, binding: Binding, config: Config, capability: int, cache: str
) -> Any:
    """Compile with Triton. Its cache is a temporary folder of ours: a worker returns its results as
    values. Its output (a failed kernel's whole PTX) is dropped, and so are line tables, which refer
    to this source."""
    _version()
    compiler: Any = importlib.import_module("triton.compiler")
    targets: Any = importlib.import_module("triton.backends.compiler")
    knobs: Any = importlib.import_module("triton.knobs")
    function = _template(binding)
    function._repr = lambda _: name  # as triton.jit(repr=) would; profilers show it
    if os.environ.get("TRITON_INTERPRET", "0") == "1":
        raise UsageError(msg("TRITON_INTERPRET is set: kernels cannot be compiled in this process"))
    source = compiler.ASTSource(fn=function, **_source(function.arg_names, binding))
    said = io.StringIO()
    with knobs.cache.scope(), knobs.compilation.scope(), contextlib.redirect_stdout(said):
        knobs.cache.dir = cache
        knobs.compilation.disable_line_info = True
        try:
            return compiler.compile(
                source,
                target=targets.GPUTarget("cuda", capability, 32),
                options={
                    "num_warps": config.warps,
                    "num_stages": config.stages,
                    "launch_pdl": config.pdl > 0,
                },
            )
        except Exception as e:  # Triton raises what its passes and ptxas raise; all are one failure
            reason = next((x for x in str(e).splitlines() if ": error" in x or "fatal" in x), "")
            raise BuildError(
                msg(
                    "{config}: {error}: {reason}",
                    config=config.label,
                    error=type(e).__name__,
                    reason=reason.strip() or one_line(e),
                )
            ) from e


def _source(names: list[str], binding: Binding) -> dict[str, Any]:
    """Return signature, constants and alignment: every pointer is a multiple of 16 bytes."""
    constants = {**binding.constants, **dict.fromkeys(binding.absent)}
    named = [t for t in binding.arguments if PARAMETERS[t.role]]
    pointers = {PARAMETERS[t.role]: _POINTERS[t.dtype] for t in named}
    unknown = [n for n in names if n not in constants and n not in pointers]
    if unknown or set(constants) - set(names):
        wrong = unknown + sorted(set(constants) - set(names))
        raise BuildError(
            msg(
                "{function}: unbound or unknown parameters {wrong}",
                function=binding.function,
                wrong=wrong,
            )
        )
    return {
        "signature": {n: pointers.get(n, "constexpr") for n in names},
        "constexprs": constants,
        "attrs": {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n in pointers},
    }
