"""Artifacts for another CPU, GPU or driver are refused before their code is loaded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvmscope.compiler import build, targets
from tvmscope.core.artifact import Artifact
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.errors import RunError
from tvmscope.machine import cpu_features, cuda_device
from tvmscope.machine.cuda_device import CudaDevice
from tvmscope.runtime import artifact as artifacts
from tvmscope.runtime import cuda_code
from tvmscope.runtime.check import check


@pytest.fixture(scope="module")
def avx512(conv_net: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A real build for a CPU with AVX-512."""
    target = targets.resolve("cpu:skylake-avx512")
    folder = tmp_path_factory.mktemp("avx512") / "a"
    build.build(conv_net, folder, target, target, CompileOptions())
    return artifacts.read(folder)


def test_avx512_build_is_refused_by_a_cpu_without_it(
    avx512: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    haswell = frozenset(targets.cpu_target("haswell").features)
    monkeypatch.setattr(cpu_features, "reported", lambda: haswell)
    with pytest.raises(RunError, match=r"skylake-avx512; this CPU lacks .*avx512f.*--target cpu"):
        check(avx512)


def test_avx512_build_is_accepted_by_a_cpu_with_it(
    avx512: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = frozenset(targets.cpu_target("icelake-server").features)
    monkeypatch.setattr(cpu_features, "reported", lambda: newer)
    check(avx512)


def _cuda(artifact: Artifact, arch: str, cuda: str | None) -> Artifact:
    versions = artifact.versions | ({"cuda": cuda} if cuda else {})
    return replace(artifact, target=Target(kind="cuda", arch=arch), versions=versions)


@pytest.mark.parametrize(
    ("built", "here", "runs"),
    [("sm_90", "sm_90", True), ("sm_86", "sm_89", True), ("sm_90a", "sm_90", True),
     ("sm_80", "sm_90", False), ("sm_89", "sm_86", False), ("sm_100", "sm_90", False)],
)  # fmt: skip
def test_gpu_code_runs_on_its_own_generation_only(
    built: str, here: str, runs: bool, avx512: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = CudaDevice("a GPU", here, "CUDA 13.0", 1, {})
    monkeypatch.setattr(cuda_device, "find", lambda: device)
    artifact = _cuda(avx512, built, "13.0")
    if runs:
        check(artifact)
    else:
        with pytest.raises(RunError, match=rf"built for {built}; a GPU is {here}; compile with"):
            check(artifact)


@pytest.mark.parametrize(
    ("built_with", "compiler", "words"),
    [
        ("13.0", None, "built with CUDA 13.0, the driver is for CUDA 12.4; update the driver"),
        (None, None, "contains CUDA source, and this machine has no compiler for it; install"),
        (None, ("nvcc", "13.0"), r"nvcc 13.0 makes code that the driver \(CUDA 12.4\)"),
    ],
)
def test_gpu_code_that_the_driver_cannot_run_is_refused(
    built_with: str | None, compiler: tuple[str, str] | None, words: str,
    avx512: Artifact, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    device = CudaDevice("a GPU", "sm_90", "CUDA 12.4", 1, {})
    monkeypatch.setattr(cuda_device, "find", lambda: device)
    monkeypatch.setattr(cuda_code, "compiler", lambda: compiler)
    with pytest.raises(RunError, match=words):
        check(_cuda(avx512, "sm_90", built_with))


def test_gpu_code_is_accepted_by_a_newer_driver(
    avx512: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = CudaDevice("a GPU", "sm_90", "CUDA 13.0", 1, {})
    monkeypatch.setattr(cuda_device, "find", lambda: device)
    monkeypatch.setattr(cuda_code, "compiler", lambda: ("nvcc", "12.9"))
    for built_with in ("12.4", None):
        check(_cuda(avx512, "sm_90", built_with))
