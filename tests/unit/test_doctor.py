"""The doctor names what is wrong and the command that fixes it, and survives what it examines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import fake_cuda
from tvmscope import extras
from tvmscope.errors import RunError
from tvmscope.runtime import tvm_compat
from tvmscope.workflow.examining import doctor


def by_name(checks: Iterator[doctor.Check]) -> dict[str, doctor.Check]:
    return {check.name: check for check in checks}


def test_wrong_ffi_fails_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_compat, "prefer_source_build", lambda: None)
    monkeypatch.setattr(doctor, "_version", lambda name: "0.1.15.post1")
    check = by_name(doctor._packages())["apache-tvm-ffi"]
    assert check.status == "fail"
    assert "0.1.15.post1, but tvmscope needs 0.1.14.post1" in check.detail
    assert "'apache-tvm-ffi==0.1.14.post1'" in check.fix


def test_source_build_is_shown_instead_of_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_compat, "prefer_source_build", lambda: Path("tvm-source"))
    check = by_name(doctor._packages())["apache-tvm"]
    assert (check.status, check.detail) == ("info", "from source: tvm-source")


def test_missing_library_fails_and_missing_extra_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    assert by_name(doctor._packages())["rich"].fix == "pip install rich"
    extra = by_name(doctor._extras())["openvino"]
    assert (extra.status, extra.fix) == ("info", "pip install 'tvmscope[openvino]'")


def test_a_bare_installation_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_compat, "prefer_source_build", lambda: None)
    bare = dict.fromkeys(extras.BASE, "1.0")
    monkeypatch.setattr(doctor, "_version", bare.get)
    checks = by_name(doctor._packages())
    assert {check.status for check in checks.values()} == {"ok", "info"}
    assert checks["apache-tvm"].fix == "pip install 'tvmscope[tvm]'"
    assert list(doctor._tvm()) == []


def test_a_part_of_an_extra_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_compat, "prefer_source_build", lambda: None)
    known = dict.fromkeys((*extras.BASE, *extras.EXTRAS["tvm"]), "1.0")
    known |= {"apache-tvm": tvm_compat.TVM_PIN, "apache-tvm-ffi": tvm_compat.FFI_PIN}
    del known["onnxslim"], known["onnxruntime"], known["xgboost-cpu"]
    known |= {"xgboost": "3.0", "onnxruntime-gpu": "1.20"}  # which provide the same modules
    monkeypatch.setattr(doctor, "_version", known.get)
    failed = {c.name: c.fix for c in doctor._packages() if c.status == "fail"}
    assert failed == {"onnxslim": "pip install onnxslim"}


def test_crashing_tvm_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*args: object, **more: object) -> None:
        raise RunError("tvm_facts: killed by signal 11 (segmentation fault)")

    monkeypatch.setattr(doctor, "run_within", crash)
    (check,) = doctor._tvm()
    assert check.status == "fail"
    assert "signal 11" in check.detail


@pytest.mark.parametrize(
    ("code", "runtime", "device", "gpu", "status", "words"),
    [
        (True, True, True, True, "ok", "generates CUDA code; its runtime sees the GPU"),
        (True, True, False, True, "warn", "its CUDA runtime sees no device"),
        (True, False, False, True, "warn", "is missing or does not load"),
        (False, False, False, True, "warn", "was built without CUDA code"),
        (True, False, False, False, "info", "generates CUDA code"),
    ],
)
def test_what_tvm_has_of_cuda(
    code: bool, runtime: bool, device: bool, gpu: bool, status: str, words: str
) -> None:
    facts = {"cuda_code": code, "cuda_runtime": runtime, "cuda_device": device}
    (check,) = doctor._tvm_cuda(facts, gpu=gpu)
    assert check.status == status
    assert words in check.detail
    assert bool(check.fix) == (status == "warn")


def test_every_gpu_is_a_line_and_what_was_never_measured_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_cuda.install(monkeypatch, fake_cuda.LARGE, fake_cuda.SMALL, fake_cuda.SMALL)
    monkeypatch.setattr(doctor.choose, "unavailable", lambda _target: None)
    lines = [(c.name, c.status, str(c.detail)) for c in doctor._gpu()][:5]
    names = [(name, status) for name, status, _ in lines]
    kernels = "generated kernels"
    assert names == [
        ("cuda:0", "ok"), ("cuda:1", "ok"), ("cuda:2", "ok"), (kernels, "ok"), (kernels, "info"),
    ]  # fmt: skip
    assert lines[1][2].startswith("RTX 3060, sm_86, ")
    assert lines[3][2] == "measured winners for sm_90 come with the package"
    assert "sm_86 have been compiled, but never run or timed" in lines[4][2]


def test_a_gpu_without_generated_kernels_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cuda.install(monkeypatch, fake_cuda.FakeGpu(name="T4", arch=75))
    gpu, kernels = list(doctor._gpu())[:2]
    assert (gpu.name, gpu.status) == ("gpu", "ok")
    assert kernels.status == "warn"
    assert "no CUDA kernel was generated" in kernels.detail


def test_fewer_threads_than_cores_are_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.cpu_features, "usable_cores", lambda: 8)
    (check,) = doctor._threads(4)
    assert "4 of 8 cores" in check.detail
    assert "TVM_NUM_THREADS=8" in check.fix


def test_backends_and_formats_go_by_the_names_that_flags_take() -> None:
    checks = by_name(doctor._plugins())
    assert "torch-compile" in checks["backends"].detail.split(", ")
    assert "json" in checks["report"].detail.split(", ")
    assert "tune" in checks["cli"].detail.split(", ")


def test_a_check_that_breaks_is_a_line() -> None:
    def _odd() -> Iterator[doctor.Check]:
        raise ValueError("surprise")
        yield

    (check,) = doctor._guarded(_odd)
    assert (check.name, check.status) == ("odd", "warn")


def test_cache_is_emptied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    (folder / "models").mkdir(parents=True)
    (folder / "models" / "x").write_bytes(b"1234")
    monkeypatch.setattr(doctor, "cache_folder", lambda: folder)
    assert doctor.clear_cache() == 4
    assert not folder.exists()
    assert doctor.clear_cache() == 0
