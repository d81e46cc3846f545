"""Returns the code of a kernel of an artifact: as TIR, and as generated from it.

An artifact stores its kernels' TIR as it was before code generation. The same TVM generates the
same code from it again, without the model, its framework or the target device. The instructions of
a generated CUDA kernel are read from the artifact itself.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from tvmscope.compiler.targets import host_target, to_tvm
from tvmscope.compiler.units import emit
from tvmscope.core.artifact import Artifact
from tvmscope.cuda.cubins import disassemble, kernel_compiler
from tvmscope.errors import BackendUnavailable, BuildError, UsageError, one_line
from tvmscope.messages import Text, msg
from tvmscope.runtime import artifact as artifacts
from tvmscope.runtime import cubins, cuda_code, load_model
from tvmscope.runtime.tables import damaged

FILE = "kernels.tir.gz"
_LOWEST_COMPRESSION = 1
"""It is written in each build: 10 ms for a ResNet-50, where the best takes 60."""
_PACKED = re.compile(r"tvmscope\.cuda\.[0-9a-f]{24}")
_NOISE = re.compile(r"^\s*\.(?:cfi_|loc|file|p2align|size|type|weak|globl|section|text|bss)")


def save(module: tvm.IRModule, folder: Path) -> None:
    """Write the kernels of a module that is ready for code generation into an artifact."""
    kernels = {v: f for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc)}
    text = tvm.ir.save_json(tvm.IRModule(kernels))
    (folder / FILE).write_bytes(gzip.compress(text.encode(), _LOWEST_COMPRESSION, mtime=0))


def read_code(folder: Path, kernel: str, kind: str) -> str:
    """Return the code of a kernel of the artifact in `folder`; `kind` is a `core.profile.Code`."""
    artifact = artifacts.read(folder)
    func = _function(artifact, kernel)
    if kind == "tir":
        return str(func.without_attr("tvmscope.trace").script())
    if emit.read(func) is not None:
        return _generated(artifact, func, kind)
    return (_cuda if artifact.target.kind == "cuda" else _cpu)(artifact, func, kernel, kind)


def _function(artifact: Artifact, kernel: str) -> tirx.PrimFunc:
    file = artifact.path / FILE
    if not file.is_file():
        raise UsageError(
            msg(
                "{folder} holds no code of its kernels, as an older version wrote it; compile "
                "the model again",
                folder=artifact.path,
            )
        )
    built = artifact.versions.get("tvm")
    if built != tvm.__version__:
        raise UsageError(
            msg(
                "{folder} was built with TVM {built}, this is TVM {version}; compile the model "
                "again, or install that version",
                folder=artifact.path,
                built=str(built),
                version=tvm.__version__,
            )
        )
    try:
        module = tvm.ir.load_json(gzip.decompress(file.read_bytes()).decode())
    except (OSError, EOFError, ValueError, RuntimeError) as e:
        raise damaged(file, e) from e
    names = [var.name_hint for var in module.functions]
    if kernel not in names:
        raise UsageError(
            msg("no kernel named '{name}' in {where}", name=kernel, where=artifact.path)
        )
    func: tirx.PrimFunc = module[kernel]
    return func


def _refused(kind: str, device: Text) -> UsageError:
    known = {"cpu": ("tir", "llvm", "asm"), "cuda": ("tir", "cuda", "ptx", "sass")}
    return UsageError(
        msg(
            "a kernel for {device} has no {kind}; it has {known}",
            device=device,
            kind=kind,
            known=known["cpu" if device == "cpu" else "cuda"],
        )
    )


# ---- kernels that TVM generates ----------------------------------------------------------------


def _compiled(artifact: Artifact, func: tirx.PrimFunc, kernel: str) -> Any:
    """TVM's module of one kernel; it is not run, and needs no device."""
    host = artifact.target if artifact.target.kind == "llvm" else host_target()
    target = tvm.target.Target(to_tvm(artifact.target), host=to_tvm(host))
    module = tvm.IRModule({kernel: func.with_attr("global_symbol", kernel)})
    load_model.choose_cuda_compiler()
    try:
        return tvm.compile(module, target=target).mod
    except Exception as e:  # TVM raises many types
        raise BuildError(
            msg("{kernel}: code generation failed: {reason}", kernel=kernel, reason=one_line(e))
        ) from e


def _cpu(artifact: Artifact, func: tirx.PrimFunc, kernel: str, kind: str) -> str:
    if kind not in ("llvm", "asm"):
        raise _refused(kind, "cpu")
    module = _compiled(artifact, func, kernel)
    if kind == "llvm":
        return readable_llvm(module.inspect_source("ll"), kernel)
    return readable_assembly(module.inspect_source("asm"), kernel)


def _cuda(artifact: Artifact, func: tirx.PrimFunc, kernel: str, kind: str) -> str:
    if kind not in ("cuda", "ptx", "sass"):
        raise _refused(kind, "cuda")
    (device,) = _compiled(artifact, func, kernel).imports
    source = str(device.inspect_source("cuda"))
    if kind == "cuda":  # behind the definitions that every source of TVM's begins with
        return source[max(source.find('extern "C" __global__'), 0) :]
    code = _translated(source, artifact, "ptx" if kind == "ptx" else "cubin")
    return code.decode() if kind == "ptx" else disassemble.sass(code)


def _translated(source: str, artifact: Artifact, form: str) -> bytes:
    """CUDA source as PTX or as machine code, with the compiler that TVM would use."""
    from tvm.support import nvcc

    found = cuda_code.compiler()
    if found is None:
        raise BackendUnavailable(
            msg(
                "a CUDA compiler is needed: install the CUDA toolkit (nvcc), or pip install "
                "cuda-bindings"
            )
        )
    target = tvm.target.Target(to_tvm(artifact.target), host=to_tvm(host_target()))
    try:
        with target:
            compiler = "nvcc" if found[0] == "nvcc" else "nvrtc"
            return bytes(nvcc.compile_cuda(source, target_format=form, compiler=compiler))
    except Exception as e:  # nvcc's words come as a RuntimeError, NVRTC's as others
        raise BuildError(
            msg("the CUDA source cannot be compiled: {reason}", reason=one_line(e))
        ) from e


# ---- kernels that Triton generated -------------------------------------------------------------


def _generated(artifact: Artifact, func: tirx.PrimFunc, kind: str) -> str:
    """Its source is a template; the instructions are the artifact's own."""
    if kind == "asm":
        raise _refused(kind, "cuda")
    placed = emit.read(func)
    assert placed is not None
    if placed[1].of_library:
        raise UsageError(
            msg(
                "{unit} is a call of NVIDIA's library ({call}), whose code is not in the "
                "artifact; it has tir alone",
                unit=placed[0].label,
                call=placed[1].label,
            )
        )
    if kind == "sass":
        return disassemble.sass(_cubin(artifact, func))
    portable = artifact.overrides.get("portable")
    made = kernel_compiler.stages(*placed, artifact.target.arch, portable)
    return made["triton" if kind == "cuda" else kind]


def _cubin(artifact: Artifact, func: tirx.PrimFunc) -> bytes:
    packed = _PACKED.search(func.script())
    entries = {entry.name: entry for entry in cubins.read(artifact.path)}
    if packed is None or packed[0] not in entries:
        raise UsageError(
            msg(
                "{folder} holds no machine code of this kernel; compile the model again",
                folder=artifact.path,
            )
        )
    entry = entries[packed[0]]
    with (artifact.path / cubins.CODE).open("rb") as stream:
        stream.seek(entry.offset)
        return stream.read(entry.size)


# ---- what people read --------------------------------------------------------------------------


def readable_assembly(text: str, kernel: str) -> str:
    """Return the functions of a kernel without directives for the debugger and the linker.

    The function that checks the arguments is left out where the work is done elsewhere.
    """
    functions = dict(_functions(text.splitlines()))
    return "\n".join(
        line
        for name in _working(functions, kernel)
        for line in functions[name]
        if not _NOISE.match(line) and not re.match(r"\.L(?:tmp|func_)", line)
    )


def _functions(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Name and lines of each; assembly gives the type of a name, then the name as a label."""
    name, found = "", list[str]()
    for line in lines:
        if begins := re.match(r"\s*\.type\s+(\S+?),\s*[@%]function", line):
            if name:
                yield name, found
            name, found = begins[1], []
        elif re.match(r"\s*\.(?:section|data|bss)\b", line) and name:
            yield name, found
            name, found = "", []
        elif name:
            found.append(line)
    if name:
        yield name, found


def readable_llvm(text: str, kernel: str) -> str:
    """Return the functions of a kernel without metadata for the debugger."""
    functions: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if begins := re.match(r"define .*?@([\w.$]+)\(", line):
            name = begins[1]
            functions[name] = []
        if name and not line.lstrip().startswith("#dbg_"):
            functions[name].append(re.sub(r",? !\w+ ![\w.]+", "", line))
        if line == "}":
            name = ""
    return "\n\n".join("\n".join(functions[n]) for n in _working(functions, kernel))


def _working(functions: Mapping[str, object], kernel: str) -> list[str]:
    """Return the functions that do a kernel's work, not those that check arguments or report."""
    own = [n for n in functions if not n.startswith("__tvm_set_raised") and n != "__tvm_ffi_main"]
    checks = f"__tvm_ffi_{kernel}"
    others = [n for n in own if n != checks and not n.startswith("__TVM")]
    return others or [n for n in own if n == checks] or list(functions)
