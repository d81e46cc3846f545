"""Operators without a kernel beside kernels on a GPU: outside graphs, on its stream, or by copies.

No GPU is needed: the lowered program is looked at, and the CPU under another number is a device
whose memory frameworks must not touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from tvmscope.compiler import build, pipeline, targets
from tvmscope.compiler.describe.sources import Imported
from tvmscope.compiler.frontends.onnx.importer import translate
from tvmscope.compiler.frontends.torch.importer import decomposed
from tvmscope.compiler.frontends.torch.importer import translate as translate_torch
from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.rewrites.cuda.outside_graph import captured_parts
from tvmscope.core.artifact import FALLBACK
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.precision import FLOAT16, FLOAT32, Precision
from tvmscope.core.target import Target
from tvmscope.errors import BuildError
from tvmscope.models.prepare import prepare
from tvmscope.runtime import fallback, fallback_gpu
from tvmscope.runtime.artifact import read
from tvmscope.runtime.framework_call import Compute

SM_90 = targets.resolve("cuda:sm_90")
X = np.random.default_rng(0).standard_normal((1, 8, 5, 7)).astype(np.float32)


def onnx_model() -> onnx.ModelProto:
    """Convolutions around an operator that only ONNX Runtime has."""
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((8, 8, 3, 3)).astype(np.float32) / 9 for _ in range(4)]
    stored = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="a", **pads),
        helper.make_node("Conv", ["a", "w1"], ["b"], name="b", **pads),
        helper.make_node("QuickGelu", ["b"], ["c"], name="c", domain="com.microsoft"),
        helper.make_node("Conv", ["c", "w2"], ["d"], name="d", **pads),
        helper.make_node("Conv", ["d", "w3"], ["e"], name="e", **pads),
        helper.make_node("Relu", ["e"], ["y"], name="y"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)],
        stored,
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (
            torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)
        )
        self.shift = torch.nn.Parameter(torch.rand(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.special.i0(self.second(self.first(x).relu()) + self.shift)
        return self.third(self.third(torch.lgamma(inner + torch.arange(7)))).relu()


def torch_program() -> torch.export.ExportedProgram:
    return decomposed(torch.export.export(Net(), (torch.from_numpy(X),), strict=False))


def imported(framework: str) -> Imported:
    if framework == "torch":
        return translate_torch(torch_program(), "m", fallback=True)
    return translate(onnx_model(), {"x": X}, "m", fallback=True)


def lowered(found: Imported, options: CompileOptions, without: str = "") -> tvm.IRModule:
    tvm_target = tvm.target.Target(targets.to_tvm(SM_90), host={"kind": "llvm"})
    module = found.module
    config = {"relax.backend.use_cuda_graph": options.graph}
    with tvm_target, tvm.transform.PassContext(opt_level=3, config=config):
        for step in pipeline.passes(Context(SM_90, options), tvm_target):
            if step.name != without:
                module = step.run(module)
    return module


def functions(module: tvm.IRModule) -> dict[str, relax.Function]:
    return {
        variable.name_hint: function
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function)
    }


def calls(function: relax.Function) -> list[relax.Call]:
    found: list[relax.Call] = []

    def note(value: Any) -> None:
        if isinstance(value, relax.Call):
            found.append(value)

    relax.analysis.post_order_visit(function, note)
    return found


def parts_called(function: relax.Function) -> list[relax.Call]:
    return [
        c for c in calls(function) if str(getattr(c.op, "global_symbol", "")).startswith(FALLBACK)
    ]


@pytest.mark.parametrize("framework", ["onnx", "torch"])
@pytest.mark.parametrize("chosen", ["tvmscope", "tvm"])
def test_no_graph_captures_a_framework(framework: str, chosen: str) -> None:
    found = imported(framework)
    options = CompileOptions(graph=True, pipeline=chosen)
    module = lowered(found, options)
    made = functions(module)
    captured = {name: f for name, f in made.items() if "cuda_graph_capture" in name}
    kernels = [c for f in captured.values() for c in calls(f) if isinstance(c.op, tvm.ir.GlobalVar)]
    assert kernels  # what is around the call is captured as before
    assert captured_parts(module) == set()
    called = [str(c.op.global_symbol) for f in made.values() for c in parts_called(f)]
    assert sorted(called) == sorted(part.name for part, _ in found.fallbacks)


@pytest.mark.parametrize("framework", ["onnx", "torch"])
def test_tvm_would_capture_it(framework: str) -> None:
    """The pass is needed; if this fails, TVM has changed and it may go."""
    found = imported(framework)
    module = lowered(found, CompileOptions(graph=True), without="outside-graph")
    assert captured_parts(module) == {part.name for part, _ in found.fallbacks}


@pytest.mark.parametrize("framework", ["onnx", "torch"])
@pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)
def test_a_framework_gets_the_types_and_shapes_that_it_was_cut_out_with(
    framework: str, precision: Precision
) -> None:
    """Whatever the layout and precision of the kernels around it are."""
    found = imported(framework)
    for graph in (False, True):
        module = lowered(found, CompileOptions(graph=graph, precision=precision))
        called = [c for f in functions(module).values() for c in parts_called(f)]
        assert len(called) == len(found.fallbacks)
        for call in called:
            for argument in call.args:  # for ONNX Runtime, its result is one of them
                assert [int(d) for d in argument.ty.shape.values] == list(X.shape)
                assert str(argument.ty.dtype) == "float32"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("model")
    onnx.save(onnx_model(), folder / "m.onnx")
    described = prepare(str(folder / "m.onnx"), str(folder / "prepared"), LoadOptions())
    return Prepared(folder / "prepared", described)


def test_an_artifact_for_cuda_says_how_its_parts_run(
    prepared: Prepared, host: Target, tmp_path: Path
) -> None:
    options = CompileOptions(graph=True, precision=FLOAT16)
    built = build.build(prepared, tmp_path / "a", SM_90, host, options)
    (part,) = read(built.path).fallbacks
    assert part.operators == ("c/QuickGelu",)
    assert (built.path / part.file).is_file()
    told = [str(text) for text in read(built.path).warnings]
    assert [t for t in told if t.startswith("c/QuickGelu run in ONNX Runtime, in parts: 1")]
    outside = "ONNX Runtime runs outside CUDA graphs, on the CPU, with copies of its inputs and"
    assert [t for t in told if t.startswith(outside)]
    assert part.name in [call.kernel for call in built.kernels]


def test_a_pipeline_that_captures_a_part_is_refused(
    prepared: Prepared, host: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "captured_parts", lambda module: {f"{FALLBACK}region_x"})
    with pytest.raises(BuildError, match="compile without --graph"):
        build.build(prepared, tmp_path / "a", SM_90, host, CompileOptions(graph=True))
    assert not (tmp_path / "a").exists()


# ---- copies to the host -----------------------------------------------------------------------


@pytest.fixture
def elsewhere() -> Any:
    """A device whose memory is not the host's as far as frameworks are told."""
    return tvm.cpu(1)


@pytest.mark.parametrize("framework", ["onnx", "torch"])
def test_copies_give_what_shared_memory_gives(framework: str, elsewhere: Any, host: Target) -> None:
    found = imported(framework)
    tvm_target = tvm.target.Target(targets.to_tvm(host), host=targets.to_tvm(host))
    module = pipeline.run(found.module, host, tvm_target, CompileOptions()).module
    executable = relax.build(module, tvm_target, relax_pipeline=None)

    def run(device: Any, given: Any) -> np.ndarray[Any, Any]:
        ways = fallback.register(found.fallbacks, 1, given)
        assert set(ways.values()) == {"shared" if given is None else "copied"}
        main = relax.VirtualMachine(executable, device)["main"]
        result = main(tvm.runtime.tensor(X, device))
        value = result if hasattr(result, "numpy") else result[0]
        assert value.device == device
        array: np.ndarray[Any, Any] = value.numpy()
        return array

    wanted = run(tvm.cpu(), None)
    for _ in range(2):
        np.testing.assert_array_equal(run(elsewhere, elsewhere), wanted)
    if framework == "torch":
        reference = Net()(torch.from_numpy(X)).detach().numpy()
        np.testing.assert_allclose(wanted, reference, rtol=1e-3, atol=1e-3)


def test_results_of_sizes_of_run_time_are_copied_too(elsewhere: Any) -> None:
    several = Compute(lambda x: [x, x.copyto(tvm.cpu())])
    x = tvm.runtime.tensor(X, elsewhere)
    first, second = fallback_gpu.through_host("p", several, elsewhere)(x)
    assert {first.device, second.device} == {elsewhere}
    np.testing.assert_array_equal(first.numpy(), X)
    one = fallback_gpu.through_host("p", Compute(lambda x: x), elsewhere)(x)
    np.testing.assert_array_equal(one.numpy(), X)


def test_a_device_is_waited_for_before_and_after() -> None:
    told: list[str] = []
    device = tvm.cpu(1)

    class Watched:
        type, index = "cpu", 1

        def sync(self, stream: int | None = None) -> None:
            told.append("wait")

        def __getattr__(self, name: str) -> Any:
            return getattr(device, name)

    @contextmanager
    def observed(name: str) -> Iterator[None]:
        told.append(f"{name} begins")
        yield
        told.append(f"{name} ends")

    before = fallback_gpu.observe
    fallback_gpu.observe = observed
    try:
        compute = Compute(lambda x, out: told.append("compute"), 1)
        x = tvm.runtime.tensor(X, device)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tvm_ffi.get_raw_stream", lambda _: 7)
            fallback_gpu.through_host("p", compute, Watched())(x, tvm.runtime.tensor(X, device))
    finally:
        fallback_gpu.observe = before
    assert told == ["wait", "wait", "p begins", "compute", "wait", "wait", "p ends"]


# ---- PyTorch on the GPU -----------------------------------------------------------------------


def test_pytorch_computes_on_tvms_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands in for the GPU."""
    used: list[Any] = []

    @contextmanager
    def stream(given: Any) -> Iterator[None]:
        used.append(given)
        yield

    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(fallback_gpu, "_stream", lambda *_: "TVM's")
    program = torch.export.export(Net(), (torch.from_numpy(X),), strict=False)
    monkeypatch.setattr(fallback_gpu, "without_kernel", lambda *_: [])
    run = fallback_gpu.in_torch(program, tvm.cpu(), "cpu")
    assert run is not None
    found = run(tvm.runtime.tensor(X))
    assert used == ["TVM's"]
    wanted = Net()(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_a_stream_of_none_is_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch would take another stream of its own for it."""
    cuda = SimpleNamespace(
        default_stream=lambda place: ("default", place),
        ExternalStream=lambda handle, device: (handle, device),
    )
    for handle, wanted in ((0, "default"), (1, "default"), (0x7F00, 0x7F00)):
        monkeypatch.setattr("tvm_ffi.get_raw_stream", lambda _, h=handle: h)
        found = fallback_gpu._stream(SimpleNamespace(cuda=cuda), None, "cuda:0")
        assert found == (wanted, "cuda:0")


def test_devices_that_operators_name_are_moved_too() -> None:
    moved = fallback_gpu.moved_to(torch_program(), "meta")
    assert {value.device.type for value in moved.state_dict.values()} == {"meta"}
    assert "cpu" not in moved.graph_module.code
    (result,) = moved.graph_module.forward(
        *moved.state_dict.values(), torch.empty(X.shape, device="meta")
    )
    assert result.device.type == "meta"


def test_an_operator_without_a_kernel_for_the_gpu_is_seen() -> None:
    with torch.library._scoped_library("tvmscope_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        library.impl("twice", lambda x: torch.empty_like(x), "Meta")

        class Twice(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.ops.tvmscope_test.twice(x).relu()  # type: ignore[no-any-return]

        program = torch.export.export(Twice(), (torch.ones(3),), strict=False)
        assert fallback_gpu.without_kernel(program, "CPU") == []
        assert "tvmscope_test::twice" in fallback_gpu.without_kernel(program, "CUDA")
        assert fallback_gpu.in_torch(program, None, "cuda:0") is None


def test_without_cuda_in_pytorch_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(type="cuda", index=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert fallback_gpu.place_of(gpu) is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def ones(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no kernel image is available for execution on the device")

    monkeypatch.setattr(torch, "ones", ones)
    assert fallback_gpu.place_of(gpu) is None
    assert fallback_gpu.place_of(SimpleNamespace(type="cpu", index=1)) is None
