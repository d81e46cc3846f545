"""What CUDA's errors mean is said when tvmscope loads and runs an artifact, too."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tvmscope
from tvmscope.backends import tvm as tvm_backend
from tvmscope.compiler import build
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.errors import RunError, UsageError
from tvmscope.measure._worker_process import _failure
from tvmscope.runtime import cubins, cuda_errors, load_model, loaded_artifact
from tvmscope.runtime.artifact import read
from tvmscope.runtime.loaded_artifact import LoadedArtifact, load_callable

MEANINGS = [
    ("CUDALaunch Error: CUDA_ERROR_INVALID_VALUE\n grid=(1,1,1)", "a CUDA kernel failed"),
    ("CUDA: an illegal memory access was encountered", "a CUDA kernel failed"),
    ("CUDA: out of memory", r"too little free memory \(0\.5 GiB\); free some"),
    ("CUDAError: cuModuleLoadData failed: CUDA_ERROR_NO_BINARY_FOR_GPU", "for another GPU"),
    ("Failed to set the allowed dynamic shared memory size to 1048576", "more shared memory than"),
    ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "driver is too old for these kernels; update it"),
]


@pytest.fixture(scope="module")
def folder(conv_net: Prepared, host: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artifact for the host whose description says that it is for CUDA."""
    made = tmp_path_factory.mktemp("cuda-errors") / "a"
    build.build(conv_net, made, host, host, CompileOptions())
    return made


@pytest.fixture
def claimed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = Path(shutil.copytree(folder, tmp_path / "a"))
    meta = json.loads((copy / "meta.json").read_text())
    meta["target"] |= {"kind": "cuda", "arch": "sm_90"}
    (copy / "meta.json").write_text(json.dumps(meta))
    monkeypatch.setattr(loaded_artifact, "check", lambda *_args, **_kw: None)
    monkeypatch.setattr(load_model, "free_memory", lambda: " (0.5 GiB)")
    return copy


def failing(said: str) -> Callable[..., Any]:
    def fail(*_args: Any, **_kw: Any) -> Any:
        raise RuntimeError(said)

    return fail


@pytest.mark.parametrize(("said", "words"), MEANINGS)
def test_a_failed_load_says_what_it_means(
    said: str, words: str, claimed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cubins, "register", failing(said))
    with pytest.raises(RunError, match=words) as found:
        tvmscope.load_artifact(claimed)
    assert "compile the model again" not in str(found.value)
    assert found.value.exit_code == 1
    assert isinstance(found.value.__cause__, RuntimeError)


def test_weights_that_do_not_fit_say_so(claimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SimpleNamespace(save_function=failing("CUDA: out of memory"))
    with pytest.raises(RunError, match="too little free memory"):
        loaded_artifact._bind_weights(machine, read(claimed), claimed / "weights.bin", ())  # type: ignore[arg-type]


def test_another_error_of_loading_keeps_its_advice(
    claimed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cubins, "register", failing("unexpected end of file"))
    with pytest.raises(RunError, match="cannot be loaded: unexpected end of file; compile the mod"):
        load_callable(claimed)


def loaded(claimed: Path, **broken: Callable[..., Any]) -> LoadedArtifact:
    """A loaded artifact whose runs or whose device fail."""
    machine = {"main": broken.get("run", lambda *_: None)}
    device = SimpleNamespace(sync=broken.get("sync", lambda: None), index=0)
    return LoadedArtifact(read(claimed), machine, device)  # type: ignore[arg-type]


@pytest.mark.parametrize(("said", "words"), MEANINGS)
def test_a_failed_run_says_what_it_means(said: str, words: str, claimed: Path) -> None:
    with pytest.raises(RunError, match=words):
        loaded(claimed, run=failing(said)).run([])
    with pytest.raises(RunError, match=words):
        loaded(claimed, sync=failing(said)).wait()
    value = SimpleNamespace(numpy=failing(said))
    with pytest.raises(RunError, match=words):
        loaded(claimed).name_outputs(value)


def test_inputs_that_do_not_fit_say_so(claimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm import runtime

    monkeypatch.setattr(runtime, "tensor", failing("CUDA: out of memory"))
    model = loaded(claimed)
    given = {s.name: np.zeros(s.shape, s.dtype) for s in model.artifact.inputs}
    with pytest.raises(RunError, match="too little free memory"):
        model.place(given)


def test_the_backend_waits_in_words(claimed: Path) -> None:
    runner = tvm_backend._CudaRunner.__new__(tvm_backend._CudaRunner)
    runner.loaded, runner.inputs = loaded(claimed, sync=failing("CUDA_ERROR_LAUNCH_FAILED")), []
    with pytest.raises(RunError, match="a CUDA kernel failed; its result is lost"):
        runner.run()


def test_a_worker_hands_the_meaning_on(claimed: Path) -> None:
    for said, kind in (("CUDA: out of memory", "memory"), ("CUDA_ERROR_LAUNCH_FAILED", "error")):
        with pytest.raises(RunError) as found:
            loaded(claimed, run=failing(said)).run([])
        told, text = _failure(found.value)
        assert told == kind
        assert re.search("cannot run here: (the GPU has too little|a CUDA kernel)", str(text))


def test_errors_of_others_are_left_alone(claimed: Path, folder: Path) -> None:
    model = loaded(claimed, run=failing("the tensor has another shape"))
    with pytest.raises(RuntimeError, match="another shape"):
        model.run([])
    on_cpu = LoadedArtifact(read(folder), {"main": failing("CUDA: out of memory")}, None)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"^CUDA: out of memory$"):
        on_cpu.run([])
    assert cuda_errors.meaning(UsageError("out of memory"), read(claimed)) is None


def test_a_device_is_checked_when_an_artifact_is_loaded(claimed: Path, folder: Path) -> None:
    with pytest.raises(UsageError, match="is compiled for cuda, not cpu"):
        tvmscope.load_artifact(claimed, device="cpu")
    with pytest.raises(UsageError, match="is compiled for cpu, not cuda:1"):
        tvmscope.load_artifact(folder, device="cuda:1")
    given = {s.name: np.zeros(s.shape, s.dtype) for s in read(folder).inputs}
    assert tvmscope.load_artifact(folder, device="cpu")(**given)


def test_the_chosen_gpu_gets_the_kernels(claimed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from support import fake_cuda

    fake_cuda.install(monkeypatch, fake_cuda.LARGE, fake_cuda.SMALL)
    asked: list[int] = []

    def register(_tvm: Any, _folder: Path, gpu: int) -> None:
        asked.append(gpu)
        raise RuntimeError("CUDA: out of memory")

    monkeypatch.setattr(cubins, "register", register)
    for device in (None, "cuda", "cuda:1"):
        with pytest.raises(RunError, match="too little free memory"):
            tvmscope.load_artifact(claimed, device=device)
    assert asked == [0, 0, 1]
