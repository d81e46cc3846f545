"""The small loader that an artifact carries: TVM alone, and a clear error for what cannot run."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvmscope.compiler import build, targets
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.machine import cpu_features
from tvmscope.runtime import load_model
from tvmscope.runtime.artifact import read, read_kernels
from tvmscope.runtime.load_model import LoadError, Model

SOURCE = True
META: dict[str, Any] = {"target": {"kind": "cuda", "arch": "sm_90"}, "versions": {}}


class Driver:
    """What libcuda.so.1 says, where there is none."""

    def __init__(self, *, code: int = 0, count: int = 1, arch: int = 90, version: int = 13000):
        self.code, self.count, self.arch, self.version = code, count, arch, version

    def cuInit(self, _flags: int) -> int:  # noqa: N802 - CUDA's names
        return self.code

    def cuDeviceGetCount(self, out: Any) -> int:  # noqa: N802
        out._obj.value = self.count
        return 0

    def cuDeviceGet(self, out: Any, index: int) -> int:  # noqa: N802
        out._obj.value = index
        return 0

    def cuDriverGetVersion(self, out: Any) -> int:  # noqa: N802
        out._obj.value = self.version
        return 0

    def cuDeviceGetAttribute(self, out: Any, number: int, _device: Any) -> int:  # noqa: N802
        out._obj.value = self.arch // 10 if number == 75 else self.arch % 10
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:  # noqa: N802
        free._obj.value, total._obj.value = 1 << 29, 80 << 30
        return 0


@pytest.fixture(scope="module")
def folder(conv_net: Prepared, host: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("loader") / "a"
    build.build(conv_net, made, host, host, CompileOptions())
    return made


@pytest.fixture(scope="module")
def gpu_folder(conv_net: Prepared, host: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")
    made = tmp_path_factory.mktemp("loader") / "gpu"
    build.build(conv_net, made, targets.resolve("cuda:sm_90"), host, CompileOptions())
    return made


def run_alone(folder: Path) -> subprocess.CompletedProcess[str]:
    """The loader as a program, where neither tvmscope nor torch can be imported."""
    code = (
        "import sys, runpy\nfor name in ('torch', 'tvmscope', 'triton'): sys.modules[name] = None\n"
        f"sys.argv = ['load_model.py']\nrunpy.run_path({str(folder / 'load_model.py')!r},"
        " run_name='__main__')"
    )
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean, timeout=120
    )


def test_the_program_runs_the_model_beside_it(folder: Path) -> None:
    done = run_alone(folder)
    assert done.returncode == 0, done.stderr
    assert "float32[" in done.stdout
    assert "ms a run" in done.stdout


def test_outputs_are_the_frameworks(folder: Path, conv_net: Prepared) -> None:
    model = Model(folder)
    with np.load(conv_net.inputs_path) as inputs, np.load(conv_net.reference_path) as expected:
        found = model(**inputs)
        for name in expected.files:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)
    with pytest.raises(TypeError, match="the model takes"):
        model()
    with pytest.raises(TypeError, match="must be float32"):
        model(*(np.zeros(3, np.float64) for _ in model.inputs))


def test_many_runs_give_the_same_bits_and_leave_no_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import repeat_runs

    found = repeat_runs.repeat(folder, 60)
    assert found["different_results"] == [1, 1]
    assert found["problems"] == []
    bad = {**found, "different_results": [2, 1], "gpu_growth_bytes": 1 << 30}
    assert len(repeat_runs.problems(bad, [{"a"}, {"a"}])) == 3


def test_a_cuda_artifact_says_what_is_missing_here(gpu_folder: Path) -> None:
    files = {f.name for f in gpu_folder.iterdir()}
    assert {"cubins.bin", "cubins.json", "load_model.py"} <= files
    done = run_alone(gpu_folder)
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU here")
    assert done.returncode == 1
    assert done.stderr.startswith("error: the model is built for CUDA (sm_90)")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("driver", "versions", "words"),
    [
        (Driver(arch=80), {}, "built for sm_90; GPU 0 is sm_80"),
        (Driver(arch=100), {}, "GPU 0 is sm_100"),
        (Driver(count=0), {}, "no GPU number 0"),
        (Driver(code=999), {}, "CUDA error 999"),
        (Driver(version=12080), {"cuda": "13.0"}, "driver is for CUDA 12; update the driver"),
        (Driver(), {}, "holds CUDA source, and no compiler is here"),
    ],
)
def test_what_cannot_run_is_refused(
    driver: Driver, versions: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: driver)
    monkeypatch.setattr(load_model.shutil, "which", lambda _name: None)
    monkeypatch.setattr(load_model.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(LoadError, match=words):
        load_model.check_gpu(META | {"versions": versions}, 0, SOURCE)


def test_the_same_gpu_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Driver())
    load_model.check_gpu(META | {"versions": {"cuda": "12.8"}}, 0, SOURCE)
    monkeypatch.setattr(load_model.shutil, "which", lambda _name: None)
    monkeypatch.setattr(load_model.importlib.util, "find_spec", lambda _name: None)
    load_model.check_gpu(META, 0, not SOURCE)  # machine code alone needs no compiler


def test_generated_kernels_say_what_their_code_takes(gpu_folder: Path) -> None:
    described = {k.name: k for k in read_kernels(gpu_folder)}
    symbols = {k["symbol"] for k in json.loads((gpu_folder / "cubins.json").read_text())}
    generated = [k for k in described.values() if k.code is not None]
    assert {k.code.symbol for k in generated if k.code} == symbols
    for kernel in generated:
        assert kernel.code is not None
        assert kernel.code.registers > 0
        assert 1 <= (kernel.code.resident or 0) <= 32
        lines = [line.text for line in kernel.tree[0].body]
        assert any("registers" in line for line in lines)
        assert any("tensor cores" in line or "no matrix" in line for line in lines)
    called = {call.kernel for call in read(gpu_folder).kernels}
    own = (gpu_folder / "model.so").read_bytes()
    for name in called - {k.name for k in generated}:  # the device will know TVM's own kernels so
        assert f"{name}_kernel".encode() in own


def test_source_in_the_library_is_seen(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "model.so").write_bytes(b'\x7fELF ... extern "C" __global__ void a_kernel(')
    assert load_model.holds_source(tmp_path / "model.so")
    assert not load_model.holds_source(folder / "model.so")


@pytest.mark.parametrize("name", ["model.so", "weights.bin", "cubins.bin", "cubins.json"])
def test_missing_and_damaged_files_are_refused(
    name: str, folder: Path, gpu_folder: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(gpu_folder if "cubins" in name else folder, tmp_path / "a"))
    meta = load_model.read_meta(copy)
    load_model.check_files(copy, meta)
    if name != "cubins.json":
        (copy / name).write_bytes((copy / name).read_bytes()[:-1] + b"?")
        with pytest.raises(LoadError, match="corrupted"):
            load_model.check_files(copy, meta)
    (copy / name).unlink()
    with pytest.raises(LoadError, match=f"no {name}"):
        load_model.check_files(copy, meta)
    (copy / "meta.json").write_text("{")
    with pytest.raises(LoadError, match="damaged"):
        load_model.read_meta(copy)


def test_another_cpu_and_another_tvm_are_refused(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    load_model.check_cpu(meta)
    target = meta["target"] | {"features": [*meta["target"]["features"], "amx-unknown"]}
    with pytest.raises(LoadError, match="this CPU lacks amx-unknown"):
        load_model.check_cpu(meta | {"target": target})
    with pytest.raises(LoadError, match="built for riscv64"):
        load_model.check_cpu(meta | {"target": meta["target"] | {"triple": "riscv64-linux"}})
    with pytest.raises(LoadError, match=r"built with TVM 0\.1"):
        load_model.import_tvm(meta | {"versions": {"tvm": "0.1"}}, None)


def test_every_cpu_feature_is_found_under_the_systems_name() -> None:
    for table in (cpu_features.X86_FLAGS, cpu_features.ARM_FLAGS):
        for feature, flag in table.items():
            wanted = load_model._plain(load_model._FLAGS.get(feature, feature))
            assert wanted == load_model._plain(flag)


class _Failing:
    def sync(self) -> None:
        pass


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("CUDALaunch Error: CUDA_ERROR_INVALID_VALUE\n grid=(1,1,1)", "a CUDA kernel failed"),
        ("CUDA: an illegal memory access was encountered", "a CUDA kernel failed"),
        ("CUDA: out of memory", r"too little free memory \(0\.5 of 80\.0 GiB are free\)"),
        ("CUDAError: cuModuleLoadData failed: CUDA_ERROR_NO_BINARY_FOR_GPU", "another GPU"),
        ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "driver is too old"),
        ("something else", "something else"),
    ],
)
def test_a_failing_run_is_an_error_in_words(
    said: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Driver())
    model = Model.__new__(Model)
    model.inputs, model.outputs = {"x": ((1,), "float32")}, {"y": ((1,), "float32")}
    model._tensor, model._device = (lambda value, _device: value), _Failing()
    model._free = load_model.free_memory

    def fail(_x: Any) -> None:
        raise RuntimeError(said)

    model._main = fail
    with pytest.raises(LoadError, match=words):
        model(np.zeros(1, np.float32))
