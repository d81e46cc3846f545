"""The other runtimes' rows on CUDA, as far as a machine without a GPU can run them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tvmscope.backends import (
    all_backends,
    onnxruntime,
    onnxruntime_libraries,
    torch_compile,
    torch_module,
)
from tvmscope.backends.api import LoadRequest
from tvmscope.backends.profilers import torch_replay
from tvmscope.core.precision import BFLOAT16, FLOAT16, FLOAT32, TF32, Precision
from tvmscope.errors import RunError
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import plan_rows

PEERS = ("torch", "torch-compile", "torch-compile-max-autotune", "onnxruntime")


def request(folder: Path, **more: Any) -> LoadRequest:
    return LoadRequest(
        **{
            "folder": str(folder), "device": "cuda", "precision": FLOAT32, "threads": 1, **more,
        }
    )  # fmt: skip


def test_every_peer_is_a_row_with_and_without_a_graph() -> None:
    from support import samples

    options = Options(backends=PEERS, precisions=(FLOAT32, TF32, FLOAT16))
    names = [row.key.name for row in plan_rows(options, (samples.CUDA,), "torch")]
    for math in ("", " tf32", " fp16"):
        for peer in PEERS:
            assert (f"{peer}{math}" in names) == (peer != "torch-compile-max-autotune")
            assert f"{peer}{math} graph" in names


def test_a_cpu_has_no_such_rows() -> None:
    known, _ = all_backends()
    assert "cpu" not in known["torch-compile-max-autotune"].kinds
    assert known["onnxruntime"].precisions_on("cpu") == (FLOAT32,)
    assert known["torch"].precisions_on("cpu") == (FLOAT32, FLOAT16, BFLOAT16)


@pytest.mark.parametrize(("precision", "conv"), [(FLOAT32, False), (TF32, True), (FLOAT16, False)])
def test_pytorch_multiplies_as_the_key_says(
    precision: Precision, conv: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    import tvmscope.models.torch_module as modules

    monkeypatch.setattr(modules, "load_module", lambda folder: SimpleNamespace())
    flags = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark
    try:
        runner = torch_module.TorchRunner(request(tmp_path, precision=precision))
        assert torch.backends.cudnn.allow_tf32 is conv
        assert torch.backends.cuda.matmul.allow_tf32 is False
        assert torch.backends.cudnn.benchmark
        assert runner.settings["tf32"] == ("convolutions" if conv else "False")
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = flags


def test_the_provider_is_told_how_to_multiply(tmp_path: Path) -> None:
    said = {
        p: onnxruntime._cuda_options(request(tmp_path, precision=p))["use_tf32"]
        for p in (FLOAT32, TF32, FLOAT16)
    }
    assert said == {FLOAT32: "0", TF32: "1", FLOAT16: "0"}
    assert onnxruntime._cuda_options(request(tmp_path, graph=True))["enable_cuda_graph"] == "1"


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("precision", [FLOAT32, FLOAT16])
def test_bound_tensors_give_the_right_outputs(
    graph: bool, precision: Precision, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The CUDA row's own way to run a session, on the CPU's provider."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((3, 8), (8, 5)))
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 5))],
            [numpy_helper.from_array(w, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    model.ir_version = 10
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "inputs.npz", x=x)
    monkeypatch.setitem(onnxruntime._PROVIDERS, "cuda", "CPUExecutionProvider")
    monkeypatch.setattr(onnxruntime, "_PLACE", "cpu")
    monkeypatch.setattr(onnxruntime, "_cuda_options", lambda _request: {})
    runner = onnxruntime.load(request(tmp_path, precision=precision, graph=graph))
    runner.run()
    (found,) = runner.outputs().values()
    assert found.dtype == precision.dtype
    np.testing.assert_allclose(found, x @ w, rtol=0, atol=precision.tolerance * 10)


class Ort:
    """A GPU build of ONNX Runtime that prints what its own search does not find."""

    def __init__(self, version: str = "13.0", registers: bool = False) -> None:
        self.cuda_version, self.preloads, self.registers = version, 0, registers

    def preload_dlls(self) -> None:
        self.preloads += 1
        print("Failed to load libcudnn.so.9")

    def get_available_providers(self) -> list[str]:
        late = self.registers and self.preloads < 2
        return ["CPUExecutionProvider"] + ["CUDAExecutionProvider"] * (not late)


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A system without CUDA libraries, whose packages have three; what was loaded, in order."""
    loaded: list[str] = []
    for place in (
        "cu13/lib/libcudart.so.13",
        "cu13/lib/libcublas.so.13",
        "cudnn/lib/libcudnn.so.9",
    ):
        file = tmp_path / "site" / "nvidia" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()

    def load(file: str) -> None:
        if not Path(file).is_file():
            raise OSError(f"{file}: cannot open shared object file")
        loaded.append(Path(file).name)

    monkeypatch.setattr(onnxruntime_libraries.ctypes, "CDLL", load)
    monkeypatch.setattr(onnxruntime_libraries.sys, "path", [str(tmp_path / "site")])
    return loaded


def test_libraries_of_packages_elsewhere_are_loaded_without_a_word(
    loader: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ort = Ort()
    missing = onnxruntime_libraries.load(ort)
    assert loader == ["libcudart.so.13", "libcublas.so.13", "libcudnn.so.9"]
    assert missing == ["libcublasLt.so.13", "libcurand.so.10"]
    assert ort.preloads == 2  # the second may register the provider
    assert capsys.readouterr().out == ""


def test_an_old_version_and_a_cpu_build_ask_for_nothing(loader: list[str]) -> None:
    assert onnxruntime_libraries.load(SimpleNamespace()) == []
    assert onnxruntime_libraries.load(SimpleNamespace(cuda_version="")) == []
    assert loader == []


def test_what_the_system_has_is_not_loaded_twice(
    loader: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(onnxruntime_libraries.ctypes, "CDLL", asked.append)
    ort = Ort("12.8")
    assert onnxruntime_libraries.load(ort) == []
    assert "libcublas.so.12" in asked
    assert all("/" not in name for name in asked)
    assert ort.preloads == 1


def test_a_provider_that_registers_late_is_available(
    loader: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime.extras, "missing", lambda name: None)
    monkeypatch.setitem(sys.modules, "onnxruntime", Ort(registers=True))
    assert onnxruntime.unavailable("cuda") is None
    never = Ort(registers=True)
    never.preload_dlls = lambda: None  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "onnxruntime", never)
    assert "not found: libcublasLt.so.13, libcurand.so.10" in str(onnxruntime.unavailable("cuda"))
    cpu = Ort("", registers=True)
    monkeypatch.setitem(sys.modules, "onnxruntime", cpu)
    assert "CPU build" in str(onnxruntime.unavailable("cuda"))


def test_their_kernels_are_profiled_by_the_devices_records() -> None:
    known, _ = all_backends()
    for name in PEERS:
        assert known[name].profiles_cuda


def test_onnx_runtimes_kernels_belong_to_the_operators_in_their_order() -> None:
    names = ("c1/Conv", "r1/Relu", "c2/Conv", "g/Gemm")
    kernels = (
        "sm90_xmma_fprop_implicit_gemm_f16", "void onnxruntime::cuda::_UnaryElementWise<Relu>",
        "sm90_xmma_fprop_implicit_gemm_f16", "nvjet_hsh_64x8_TNT",
    )  # fmt: skip
    assert torch_replay.by_anchors(kernels, names) == [
        ("c1/Conv", "r1/Relu"), ("c1/Conv", "r1/Relu"), ("c2/Conv",), ("g/Gemm",),
    ]  # fmt: skip


def test_without_pytorch_onnx_runtimes_kernels_have_no_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(onnxruntime.extras, "missing", lambda name: "pip install torch")
    with pytest.raises(RunError, match="is not installed"):
        onnxruntime._CudaRunner.profiler(SimpleNamespace())  # type: ignore[arg-type]


class Compiler:
    """A model whose code takes some seconds to run, by memory format, and to compile."""

    has_images = True

    def __init__(
        self, channels_last_s: float, contiguous_s: float, *, eager: bool = True,
        compile_s: float = 1.0, fails: bool = False,
    ) -> None:  # fmt: skip
        self.times = {True: channels_last_s, False: contiguous_s}
        self.eager, self.compile_s, self.fails = eager, compile_s, fails
        self.log: list[Any] = []
        self.now, self.format = 0.0, False
        self.torch = SimpleNamespace(
            compile=self._compile, _dynamo=SimpleNamespace(reset=lambda: self.log.append("reset"))
        )

    def prefers_channels_last(self) -> bool:
        return self.eager

    def prepare(self, channels_last: bool) -> tuple[Any, tuple[()], dict[str, Any]]:
        self.format = channels_last
        return object(), (), {}

    def _compile(self, module: Any, mode: str) -> Any:
        own = self.format
        self.log.append((mode, own))
        self.now += self.compile_s
        if self.fails and own != self.eager:
            raise RuntimeError("out of memory")
        return lambda: own

    def quick_s(self, call: Any, n: int) -> float:
        return self.times[call()]


def chosen(compiler: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, bool]:
    """The format that was chosen, and that of the code which runs."""
    monkeypatch.setattr(torch_compile.time, "perf_counter", lambda: compiler.now)
    found, call = torch_compile.fastest(compiler, "default")
    return found, call()


def test_the_faster_code_counts_not_the_faster_eager_run(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Compiler(2e-3, 1e-3)
    assert chosen(other, monkeypatch) == (False, False)
    assert other.log == [("default", True), "reset", ("default", False)]
    same = Compiler(1e-3, 2e-3)
    assert chosen(same, monkeypatch) == (True, True)
    assert same.log == [("default", True), "reset", ("default", False), "reset", ("default", True)]


def test_a_long_compilation_is_not_repeated_for_another_format(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Compiler(2e-3, 1e-3, compile_s=90.0)
    assert chosen(slow, monkeypatch) == (True, True)
    assert slow.log == [("default", True)]


def test_a_format_that_cannot_be_compiled_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Compiler(2e-3, 1e-3, fails=True)
    assert chosen(broken, monkeypatch) == (True, True)
    assert broken.log[-1] == ("default", True)


def test_max_autotune_is_compiled_once_in_the_format_of_the_other_graph(tmp_path: Path) -> None:
    compiler: Any = Compiler(2e-3, 1e-3)
    found = torch_compile._format(compiler, "max-autotune", tmp_path, request(tmp_path))
    assert found == (False, None)
    assert {mode for mode, _ in (e for e in compiler.log if e != "reset")} == {"reduce-overhead"}
    assert compiler.log[-1] == "reset"
    compiler.log.clear()  # the other workers of the job take the same
    assert torch_compile._format(compiler, "max-autotune", tmp_path, request(tmp_path))[0] is False
    assert torch_compile._format(compiler, "reduce-overhead", tmp_path, request(tmp_path)) == (
        False, None,
    )  # fmt: skip
    assert compiler.log == []
    half = request(tmp_path, precision=FLOAT16)
    assert torch_compile._format(compiler, "reduce-overhead", tmp_path, half)[0] is False
    assert compiler.log  # another precision may prefer another


def test_only_images_and_windows_over_them_have_a_memory_format(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    import tvmscope.models.torch_module as modules

    def has_images(module: torch.nn.Module, *shape: int) -> bool:
        loaded = SimpleNamespace(module=module, args=(torch.zeros(shape),), kwargs={})
        monkeypatch.setattr(modules, "load_module", lambda folder: loaded)
        return torch_module.TorchRunner(request(tmp_path, device="cpu")).has_images

    assert has_images(torch.nn.Conv2d(3, 4, 3), 1, 3, 8, 8)
    assert not has_images(torch.nn.Linear(8, 8), 1, 3, 8, 8)
    assert not has_images(torch.nn.Conv1d(3, 4, 3), 1, 3, 8)
