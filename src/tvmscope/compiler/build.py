"""Compiles a prepared model into an artifact folder: import, lower, generate, link, describe."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import tvm

from tvmscope.compiler import frontends, pipeline
from tvmscope.compiler.codegen import machine_code, shares
from tvmscope.compiler.codegen.lift_weights import lift_weights
from tvmscope.compiler.codegen.linkers import link, linker_for
from tvmscope.compiler.describe import kernel_code, sources
from tvmscope.compiler.describe.machine_code import with_code
from tvmscope.compiler.frontends import preflight
from tvmscope.compiler.rewrites.cuda.outside_graph import captured_parts
from tvmscope.compiler.targets import to_tvm
from tvmscope.compiler.units import choose
from tvmscope.core.artifact import Artifact
from tvmscope.core.model import Prepared, TensorSpec
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.core.vision import vision_of
from tvmscope.cuda.library.call import FILES, needs
from tvmscope.errors import BuildError, one_line
from tvmscope.machine import cpu_features
from tvmscope.messages import Text, msg
from tvmscope.runtime import artifact as artifacts
from tvmscope.runtime import cubins, cuda_code, fallback, load_model, tvm_compat, weights
from tvmscope.storage.files import digest_file


def build(
    prepared: Prepared, output: Path, target: Target, host: Target, options: CompileOptions
) -> Artifact:
    """Compile into the folder `output`, which appears complete or not at all."""
    start = time.perf_counter()
    imported = frontends.import_model(prepared, options.fallback)
    tvm_target = tvm.target.Target(to_tvm(target), host=to_tvm(host))
    lowered = pipeline.run(imported.module, target, tvm_target, options)
    if captured := captured_parts(lowered.module):
        raise BuildError(
            msg(
                "{model}: the pipeline {pipeline} captures operators that run in a framework in a "
                "CUDA graph: {operators}; compile without --graph",
                model=prepared.model.name,
                pipeline=options.pipeline,
                operators=[
                    operator
                    for part, _ in imported.fallbacks
                    if part.name in captured
                    for operator in part.operators
                ],
            )
        )
    module, constants = lowered.module, list[np.ndarray]()
    if target.kind == "llvm":  # a GPU gets its own copy, and CUDA graphs need constants
        module, constants = lift_weights(module)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as scratch:
        library, apart = Path(scratch) / artifacts.LIBRARY, Path(scratch) / artifacts.WEIGHTS
        linked_for = target if target.kind == "llvm" else host
        kept = _generate(prepared, module, tvm_target, options, library, linked_for)
        stored = weights.save(constants, apart) if constants else ()
        cubins.save(_cubins(lowered), Path(scratch), lowered.library_calls)
        shutil.copyfile(load_model.__file__, Path(scratch) / artifacts.LOADER)
        for part, content in imported.fallbacks:
            (Path(scratch) / part.file).write_bytes(content)
        code = Path(scratch) / cubins.CODE
        described = Artifact(
            path=output,
            model=prepared.model.name,
            source=prepared.model.source,
            model_digest=prepared.model.digest,
            library_digest=digest_file(library),
            target=target,
            inputs=prepared.model.inputs,
            outputs=_outputs(prepared, lowered.module),
            exec_mode=options.exec_mode,
            precision=options.precision,
            pipeline=options.pipeline,
            graph=options.graph,
            disabled_passes=options.disabled_passes,
            overrides=options.overrides,
            tuned=any(kernel.tuned for kernel in lowered.kernels),
            threads=options.threads,
            build_s=time.perf_counter() - start,
            size_bytes=sum(f.stat().st_size for f in (library, apart, code) if f.exists()),
            stored=stored,
            stored_digest=digest_file(apart) if stored else None,
            generated_digest=digest_file(code) if code.exists() else None,
            libraries=needs(lowered.library_calls.values()),
            fallbacks=tuple(part for part, _ in imported.fallbacks),
            pass_times_s=lowered.times_s,
            versions=versions() | _cuda_version(library, target),
            plugins=pipeline.plugins(options, target),
            kernels=sources.name_calls(lowered.calls, imported.sources),
            warnings=(
                *imported.warnings,
                *preflight.on_device([part for part, _ in imported.fallbacks], target.device),
                *lowered.remarks,
                *kept,
                *_unmeasured(lowered, target, options),
            ),
            vision=vision_of(prepared),
            weights=prepared.model.weights,
            format=prepared.model.format,
        )
        described_code = with_code(lowered.kernels, lowered.generated.values(), target)
        artifacts.save_kernels(described_code, Path(scratch))
        kernel_code.save(lowered.module, Path(scratch))
        artifacts.save(described, Path(scratch))
        _replace_folder(Path(scratch), output)
    return described


def _unmeasured(
    lowered: pipeline.Lowered, target: Target, options: CompileOptions
) -> tuple[Text, ...]:
    """Say that the artifact's kernels are for an architecture on which none was ever measured, by
    this project or by the user's tuning."""
    remark = choose.unmeasured(target.arch) if lowered.generated and not options.choices else None
    return () if remark is None else (remark,)


def _cubins(lowered: pipeline.Lowered) -> dict[str, tuple[cubins.Cubin, bytes]]:
    return {
        name: (
            cubins.Cubin(
                name=name,
                symbol=kernel.name,
                offset=0,
                size=len(kernel.cubin),
                pointers=len(kernel.arguments),
                hidden_pointers=kernel.hidden_pointers,
                dependent=kernel.config.pdl > 0,
                registers=kernel.registers,
                shared_bytes=kernel.shared_bytes,
                local_bytes=kernel.local_bytes,
                what=kernel.config.label,
            ),
            kernel.cubin,
        )
        for name, kernel in lowered.generated.items()
    }


def _generate(
    prepared: Prepared,
    module: tvm.IRModule,
    tvm_target: tvm.target.Target,
    options: CompileOptions,
    library: Path,
    linked_for: Target,
) -> list[Text]:
    """Write the library: code on all cores, then linked. Return remarks on its code."""
    load_model.choose_cuda_compiler()
    tvm_compat.remember_cuda_binaries(tvm)
    cores = cpu_features.usable_cores()
    with tempfile.TemporaryDirectory(prefix="tvmscope-") as folder:
        try:
            made = shares.generate(module, tvm_target, options.exec_mode, Path(folder), cores)
        except Exception as e:  # TVM raises many types here, from InternalError to RuntimeError
            raise BuildError(
                msg(
                    "{model}: code generation for {kind} failed: {reason}",
                    model=prepared.model.name,
                    kind=tvm_target.kind.name,
                    reason=one_line(e),
                )
            ) from e
        return _link(made, library, linked_for, tvm_target)


def _link(
    made: shares.Generated, library: Path, target: Target, tvm_target: tvm.target.Target
) -> list[Text]:
    remarks: list[Text] = []
    linker, packer = partial(link, linker_for(target)), machine_code.packer(tvm_target, remarks)
    objects = [str(file) for file in made.objects]
    try:
        made.executable.export_library(
            str(library), fcompile=linker, fpack_imports=packer, addons=objects
        )
    except BuildError:
        raise
    except Exception as e:  # TVM raises its own error types while it writes object files
        raise BuildError(msg("the library cannot be written: {reason}", reason=one_line(e))) from e
    return remarks


def _outputs(prepared: Prepared, module: tvm.IRModule) -> tuple[TensorSpec, ...]:
    """Return the source's output names with the types that the compiled function returns."""
    result = module["main"].ret_ty
    types = list(result.fields) if hasattr(result, "fields") else [result]
    if len(types) != len(prepared.model.outputs):
        raise BuildError(
            msg(
                "{model}: the compiled model returns {count} outputs, the source {wanted}",
                model=prepared.model.name,
                count=len(types),
                wanted=len(prepared.model.outputs),
            )
        )
    return tuple(
        TensorSpec(spec.name, spec.shape, str(getattr(kind, "dtype", spec.dtype)))
        for spec, kind in zip(prepared.model.outputs, types, strict=True)
    )


def _replace_folder(scratch: Path, output: Path) -> None:
    """Move the files over; an earlier artifact is removed only when the new one is complete."""
    output.mkdir(exist_ok=True)
    parts = [file.name for file in output.glob(fallback.FILES)]
    calls = [file.name for file in FILES.values()]
    for name in (artifacts.WEIGHTS, cubins.CODE, cubins.TABLE, *calls, *parts):
        if not (scratch / name).exists():
            (output / name).unlink(missing_ok=True)  # from an earlier artifact
    for file in sorted(scratch.iterdir(), key=lambda f: f.name == artifacts.META):
        shutil.move(str(file), output / file.name)


def _cuda_version(library: Path, target: Target) -> dict[str, str]:
    """Return the CUDA version that a driver needs; none if kernels are compiled on loading."""
    if target.kind != "cuda" or not cuda_code.holds_binary(library):
        return {}
    found = cuda_code.compiler()
    return {"cuda": found[1]} if found else {}


def versions() -> dict[str, str]:
    """Return the versions of the packages that made the artifact."""
    found = {"python": sys.version.split()[0], "tvm": str(tvm.__version__)}
    for package in ("tvmscope", "apache-tvm-ffi", "torch", "onnx", "triton"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # running from a source tree, or an optional package
    return found
