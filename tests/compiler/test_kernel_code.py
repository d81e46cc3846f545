"""The code of any kernel of an artifact, from TIR to machine code, without a GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tvmscope.compiler import build, targets
from tvmscope.compiler.describe import kernel_code
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16
from tvmscope.core.target import Target
from tvmscope.cuda import config as configs
from tvmscope.cuda.cubins import disassemble
from tvmscope.errors import BackendUnavailable, UsageError
from tvmscope.runtime import artifact as artifacts
from tvmscope.runtime import cuda_code


@pytest.fixture(scope="module")
def cpu(conv_net: Prepared, host: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code") / "cpu"
    build.build(conv_net, folder, host, host, CompileOptions())
    return folder


@pytest.fixture(scope="module")
def cuda(conv_net: Prepared, host: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")
    folder = tmp_path_factory.mktemp("code") / "cuda"
    target = targets.resolve("cuda:sm_90")
    build.build(conv_net, folder, target, host, CompileOptions(precision=FLOAT16))
    return folder


def kernel(folder: Path, rule: str) -> str:
    return next(ir.name for ir in artifacts.read_kernels(folder) if ir.rule == rule)


def test_tir_is_the_scheduled_function_without_its_trace(cpu: Path) -> None:
    text = kernel_code.read_code(cpu, kernel(cpu, "conv2d"), "tir")
    assert "T.vectorized" in text
    assert "T.parallel" in text
    assert "sch.split" not in text


def test_llvm_holds_the_functions_that_work_and_nothing_for_debuggers(cpu: Path) -> None:
    name = kernel(cpu, "conv2d")
    text = kernel_code.read_code(cpu, name, "llvm")
    assert f"@{name}_compute_" in text
    assert "fmul" in text or "llvm.fma" in text or "fmuladd" in text
    assert "!dbg" not in text
    assert "__tvm_set_raised" not in text.split("define", 1)[0]


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump reads the library")
def test_the_assembly_has_the_instructions_of_the_artifacts_library(cpu: Path) -> None:
    name = kernel(cpu, "conv2d")
    shown = kernel_code.read_code(cpu, name, "asm")
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(cpu / artifacts.LIBRARY)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    ours, theirs = _arithmetic(shown), _arithmetic(_of_kernel(listing, name))
    assert ours
    assert ours == theirs


def _arithmetic(text: str) -> list[str]:
    """The multiply-adds in order; how they are written differs in nothing but the operands."""
    return re.findall(r"\b(vfn?m(?:add|sub)\w+|fmla|fmadd|fmul)\b", text)


def _of_kernel(listing: str, name: str) -> str:
    """From the kernel's own function to where the next kernel begins."""
    parts = re.split(r"^[0-9a-f]+ <(.+)>:$", listing, flags=re.MULTILINE)
    named = list(zip(parts[1::2], parts[2::2], strict=True))
    start = next(i for i, (symbol, _) in enumerate(named) if symbol == f"{name}_compute_")
    return "".join(
        body for symbol, body in _until_next(named[start:]) if "set_raised" not in symbol
    )


def _until_next(named: list[tuple[str, str]]) -> list[tuple[str, str]]:
    found = named[:1]
    for symbol, body in named[1:]:
        if symbol.startswith("__tvm_ffi") or symbol.endswith("_compute_"):
            break
        found.append((symbol, body))
    return found


@pytest.mark.parametrize(("kind", "words"), [
    ("tir", "tvmscope.cuda."), ("cuda", "tl.store"), ("llvm", "define"), ("ptx", ".visible .entry"),
])  # fmt: skip
def test_a_generated_cuda_kernel_in_all_its_forms(cuda: Path, kind: str, words: str) -> None:
    assert words in kernel_code.read_code(cuda, kernel(cuda, configs.RULE), kind)


def test_the_gpus_instructions_are_read_from_the_artifact(cuda: Path) -> None:
    if disassemble.find_tool("nvdisasm") is None:
        pytest.skip("no disassembler")
    text = kernel_code.read_code(cuda, kernel(cuda, configs.RULE), "sass")
    assert "EXIT" in text
    assert "HMMA" in text or "HGMMA" in text


def test_a_scheduled_cuda_kernel_is_compiled_by_the_cuda_compiler(
    conv_net: Prepared, host: Target, tmp_path: Path
) -> None:
    cuda, options = tmp_path / "scheduled", CompileOptions(pipeline="tvm")
    build.build(conv_net, cuda, targets.resolve("cuda:sm_90"), host, options)
    name = next(ir.name for ir in artifacts.read_kernels(cuda) if "relu" in ir.name)
    source = kernel_code.read_code(cuda, name, "cuda")
    assert source.startswith('extern "C" __global__')
    if cuda_code.compiler() is None:
        with pytest.raises(BackendUnavailable, match="CUDA compiler"):
            kernel_code.read_code(cuda, name, "ptx")
        return
    assert ".visible .entry" in kernel_code.read_code(cuda, name, "ptx")
    assert "EXIT" in kernel_code.read_code(cuda, name, "sass")


def test_a_form_that_a_device_lacks_is_refused_with_those_it_has(cpu: Path, cuda: Path) -> None:
    with pytest.raises(UsageError, match="tir, llvm, asm"):
        kernel_code.read_code(cpu, kernel(cpu, "conv2d"), "sass")
    with pytest.raises(UsageError, match="tir, cuda, ptx, sass"):
        kernel_code.read_code(cuda, kernel(cuda, configs.RULE), "asm")


def test_an_artifact_without_code_says_what_to_do(cpu: Path, tmp_path: Path) -> None:
    old = shutil.copytree(cpu, tmp_path / "old")
    (old / kernel_code.FILE).unlink()
    with pytest.raises(UsageError, match="compile the model again"):
        kernel_code.read_code(old, kernel(cpu, "conv2d"), "tir")


def test_no_disassembler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassemble, "find_tool", lambda _: None)
    with pytest.raises(BackendUnavailable, match="nvdisasm"):
        disassemble.sass(b"")
