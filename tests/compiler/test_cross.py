"""Builds for machines that are not here: checked by the instructions in them, never run."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

import tvmscope
from tvmscope.compiler import build, frontends, pipeline, targets
from tvmscope.compiler.codegen import linkers, machine_code, shares
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.errors import BuildError, RunError
from tvmscope.messages import render
from tvmscope.runtime import artifact, cuda_code, load_model
from tvmscope.runtime.loaded_artifact import load_callable

X86_64, AARCH64 = 62, 183
# FMLA on four floats, by vector and by element: fixed bits and which of them count.
FMLA_VECTOR, FMLA_ELEMENT = (0x4E20CC00, 0xFFE0FC00), (0x4F801000, 0xFFC0F400)


def compiled(ready: Prepared, folder: Path, name: str) -> Path:
    target = targets.resolve(name)
    build.build(ready, folder, target, target, CompileOptions())
    return folder / artifact.LIBRARY


def machine(library: Path) -> int:
    """The machine field of an ELF file."""
    data = library.read_bytes()
    assert data[:4] == b"\x7fELF"
    return int(struct.unpack_from("<H", data, 18)[0])


def sections(library: Path) -> dict[str, bytes]:
    """The sections of a 64-bit ELF file by name."""
    data = library.read_bytes()
    (offset,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, offset + i * size) for i in range(count)]
    text = headers[names][4]
    found = {}
    for name, _, _, _, start, length in headers:
        label = data[text + name : data.index(b"\0", text + name)].decode()
        found[label] = data[start : start + length]
    return found


def disassemble(library: Path) -> str:
    """What objdump (binutils, a part of every C compiler's installation) reads."""
    done = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(library)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
@pytest.mark.parametrize(
    ("name", "registers", "absent"),
    [
        ("cpu:skylake-avx512", "%zmm", "%tmm"),
        ("cpu:haswell", "%ymm", "%zmm"),
        ("cpu:x86-64", "%xmm", "%ymm"),
    ],
)
def test_x86_build_uses_the_registers_of_its_cpu(
    name: str, registers: str, absent: str, conv_net: Prepared, tmp_path: Path
) -> None:
    library = compiled(conv_net, tmp_path / "a", name)
    assert machine(library) == X86_64
    assembly = disassemble(library)
    kernels = [line for line in assembly.splitlines() if "conv2d" in line and line.endswith(">:")]
    assert kernels
    multiply = ("vfmadd", "vmulps", "mulps")
    assert any(registers in line and any(m in line for m in multiply)
               for line in assembly.splitlines())  # fmt: skip
    assert absent not in assembly


def test_arm64_build_has_its_vector_instructions(conv_net: Prepared, tmp_path: Path) -> None:
    library = compiled(conv_net, tmp_path / "a", "arm64:cortex-a72")
    assert machine(library) == AARCH64
    text = sections(library)[".text"]
    words = struct.unpack(f"<{len(text) // 4}I", text[: len(text) // 4 * 4])

    def count(bits: int, mask: int) -> int:
        return sum(word & mask == bits for word in words)

    assert count(*FMLA_VECTOR) + count(*FMLA_ELEMENT) > 10
    assert artifact.read(tmp_path / "a").target.triple == "aarch64-linux-gnu"


def test_arm64_artifact_is_refused_here(conv_net: Prepared, tmp_path: Path) -> None:
    compiled(conv_net, tmp_path / "a", "arm64:cortex-a72")
    with pytest.raises(RunError, match="is built for aarch64, this machine is"):
        load_callable(tmp_path / "a")


def test_a_cross_compiler_of_the_system_comes_before_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.resolve("arm64:cortex-a72")
    assert "ziglang" in linkers.linker_for(target)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert linkers.linker_for(target) == ("/usr/bin/aarch64-linux-gnu-g++",)


def test_without_a_linker_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    target = targets.resolve("arm64:cortex-a72")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(linkers, "_zig", lambda: None)
    with pytest.raises(BuildError, match=r"no linker for aarch64.*pip install ziglang"):
        linkers.linker_for(target)


@pytest.mark.parametrize("command", [("no-such-linker",), ("false",), ("true",)])
def test_a_linker_that_fails_is_named(command: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=f"linking with {command[0]} failed"):
        linkers.link(command, str(tmp_path / "out.so"), [])


def cuda_sources(ready: Prepared, variant: str) -> list[str]:
    """The kernels that a build for sm_90 holds, in CUDA."""
    target = targets.resolve("cuda:sm_90")
    host = Target(kind="llvm", arch="x86-64")
    tvm_target = tvm.target.Target(targets.to_tvm(target), host=targets.to_tvm(host))
    module = frontends.import_model(ready).module
    lowered = pipeline.run(module, target, tvm_target, CompileOptions(pipeline=variant))
    executable = tvm.relax.build(lowered.module, tvm_target, relax_pipeline=None)
    waiting, found = [executable.mod], []
    while waiting:
        current = waiting.pop()
        waiting += list(current.imports)
        if current.kind == "cuda":
            found.append(current.inspect_source("cuda"))
    return found


def test_cuda_build_needs_no_device(conv_net: Prepared, tmp_path: Path) -> None:
    target, host = targets.resolve("cuda:sm_90"), targets.host_target()
    built = build.build(conv_net, tmp_path / "a", target, host, CompileOptions())
    assert built.target.arch == "sm_90"
    assert any("conv2d" in call.kernel for call in built.kernels)
    assert artifact.read(tmp_path / "a") == built


def test_cuda_library_holds_all_its_kernels(tmp_path: Path) -> None:
    """Also where a build for the CPU would split the kernels into several object files."""
    source = tmp_path / "net.py"
    source.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        f"        return tuple(x[: 8 + n].flip(0) for n in range({2 * shares.LEAST_KERNELS}))\n\n\n"
        "def get_init_inputs():\n    return []\n\n\n"
        "def get_inputs():\n    return [torch.randn(32, 16)]\n"
    )
    tvmscope.compile(str(source), tmp_path / "a", target="cuda:sm_90")
    kernels = [kernel.name for kernel in artifact.read_kernels(tmp_path / "a")]
    assert len(kernels) >= 2 * shares.LEAST_KERNELS
    library = (tmp_path / "a" / artifact.LIBRARY).read_bytes()
    defined = {str(name, "ascii") for name in re.findall(rb"(\w+)_kernel\(", library)}
    code = {str(name, "ascii") for name in re.findall(rb"\.text\.(\w+)_kernel\b", library)}
    assert not set(kernels) - defined - code


def machine_code_of(source: str) -> bytes:
    """What stands for a compiler's output: an ELF file for a GPU."""
    return (
        b"\x7fELF\x02\x01" + b"\0" * 12 + struct.pack("<H", 190) + b"\0" * 12 + source[:8].encode()
    )


@pytest.mark.parametrize("there", [True, False], ids=["compiler", "no-compiler"])
def test_cuda_library_built_without_a_gpu_holds_machine_code(
    there: bool, conv_net: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TVM alone writes source, which the machine that loads it would have to compile."""
    given: list[str] = []

    def compiled(code: str) -> bytes:
        given.append(code)
        return machine_code_of(code)

    name = "tvm_callback_cuda_compile"
    before = tvm.get_global_func(name)
    tvm.register_global_func(name, compiled, override=True)
    monkeypatch.setattr(cuda_code, "compiler", lambda: ("nvcc", "13.0") if there else None)
    target, host = targets.resolve("cuda:sm_90"), targets.host_target()
    try:
        built = build.build(conv_net, tmp_path / "a", target, host, CompileOptions())
    finally:
        tvm.register_global_func(name, before, override=True)
    library = tmp_path / "a" / artifact.LIBRARY
    assert cuda_code.holds_binary(library) == there
    assert load_model.holds_source(library) != there
    assert built.versions.get("cuda") == ("13.0" if there else None)
    if there:
        (source,) = given
        assert machine_code_of(source) in library.read_bytes()


def packed_modules(*modules: tuple[bytes, bytes]) -> bytes:
    """Modules as TVM packs them: a tree of a root that imports the others, then each one."""
    text = lambda b: struct.pack("<Q", len(b)) + b  # noqa: E731
    tree = struct.pack("<5Q", 2, 0, 1, 1, 1)
    body = tree + b"".join(text(kind) + (text(c) if c else b"") for kind, c in modules)
    return struct.pack("<Q", len(body)) + body


def cuda_module(form: bytes, code: bytes) -> bytes:
    """One kernel of two arguments and two launch parameters."""
    text = lambda b: struct.pack("<Q", len(b)) + b  # noqa: E731
    types = struct.pack("<Q", 2) + b"\x03@\x01\0" * 2
    tags = struct.pack("<Q", 2) + text(b"blockIdx.x") + text(b"threadIdx.x")
    kernel = text(b"a_kernel") * 2 + types + tags + struct.pack("<Q", 2) + b"\0" * 8
    return text(form) + struct.pack("<Q", 1) + kernel + text(code)


def test_packed_modules_get_machine_code() -> None:
    others = ((b"relax.VMExecutable", b"program"), (b"_lib", b""))
    blob = packed_modules(*others, (b"cuda", cuda_module(b"cuda", b"source")))
    wanted = packed_modules(*others, (b"cuda", cuda_module(b"cubin", b"CODE")))
    for given, code in ((blob, b"CODE"), (wanted, b"other")):
        made = machine_code.with_machine_code(memoryview(given), lambda _, c=code: c, [])
        assert b"".join(made) == wanted


@pytest.mark.parametrize("said", [
    "nvcc fatal : Unsupported gpu architecture 'sm_50'",
    "Cannot find CUDA path. Please set CUDA_PATH environment variable",
    "host_config.h(143): error: #error -- unsupported GNU version!",
])  # fmt: skip
def test_source_is_kept_where_the_compiler_does_not_work(said: str) -> None:
    blob, remarks = packed_modules((b"cuda", cuda_module(b"cuda", b"source"))), []

    def fails(_: str) -> bytes:
        raise RuntimeError(f"extern kernel();\nCompilation error:\n{said}")

    assert b"".join(machine_code.with_machine_code(blob, fails, remarks)) == blob
    (remark,) = map(render, remarks)
    assert said in remark
    assert "compiled where the artifact is loaded" in remark


def test_an_error_in_the_source_ends_the_build() -> None:
    blob = packed_modules((b"cuda", cuda_module(b"cuda", b"source")))

    def broken(_: str) -> bytes:
        raise RuntimeError('a/tvm_kernels.cu(7): error: expected a ";"\n1 error detected')

    with pytest.raises(BuildError, match=r"CUDA source cannot be compiled: .*expected"):
        machine_code.with_machine_code(blob, broken, [])


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler is installed")
def test_large_data_is_kept_away_from_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code reaches 2 GiB: a library with more weights than that in between cannot be linked."""
    made = {}
    for limit in (1 << 30, 1):
        monkeypatch.setattr(machine_code, "_LARGE_BYTES", limit)
        section = machine_code._section(100, "x86_64-linux-gnu")
        source = tmp_path / "data.s"
        (tmp_path / "data.bin").write_bytes(b"*" * 100)
        text = machine_code._ASSEMBLY.format(
            section=section, symbol="blob", file=tmp_path / "data.bin", size=100
        )
        source.write_text(text)
        library = tmp_path / f"{limit}.so"
        subprocess.run(["gcc", "-shared", "-o", library, source], check=True)
        made[limit] = sections(library)
    assert b"*" * 100 in made[1 << 30][".rodata"]
    assert b"*" * 100 in made[1][".lrodata"]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("variant", ["tvm", "tvmscope"])
def test_cuda_kernels_compile_for_their_gpu(
    variant: str, conv_net: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    (source,) = cuda_sources(conv_net, variant)
    assert "__global__" in source
    with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}):
        binary = tvm.get_global_func("tvm_callback_cuda_compile")(source)
    (tmp_path / "kernels").write_bytes(b"\0" * 16 + bytes(binary))
    assert cuda_code.holds_binary(tmp_path / "kernels")
    (tmp_path / "source").write_text(source)
    assert not cuda_code.holds_binary(tmp_path / "source")


def test_nvcc_is_chosen_where_cuda_bindings_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVM_CUDA_COMPILE_MODE", raising=False)
    monkeypatch.setattr(load_model.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    load_model.choose_cuda_compiler()
    assert load_model.os.environ["TVM_CUDA_COMPILE_MODE"] == "nvcc"
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvrtc")
    load_model.choose_cuda_compiler()
    assert load_model.os.environ["TVM_CUDA_COMPILE_MODE"] == "nvrtc"


def test_a_users_cuda_py_is_not_taken_for_cuda_bindings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cuda.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cuda", raising=False)
    monkeypatch.delenv("TVM_CUDA_COMPILE_MODE", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    load_model.choose_cuda_compiler()
    assert load_model.os.environ["TVM_CUDA_COMPILE_MODE"] == "nvcc"
    monkeypatch.delitem(sys.modules, "cuda", raising=False)
