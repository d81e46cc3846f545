"""Artifacts whose kernels are calls of cuBLASLt: when, what they say, and how they are loaded."""

from __future__ import annotations

import ctypes
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from support import fake_cublaslt, placed_units
from tvmscope.compiler import targets
from tvmscope.compiler.describe import kernel_code
from tvmscope.compiler.tunable import unit_tasks
from tvmscope.compiler.units import choose, emit
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16, FLOAT32
from tvmscope.core.tuning import Candidate, Choice
from tvmscope.cuda.config import Config, to_json
from tvmscope.cuda.library import call as library
from tvmscope.cuda.library import cublaslt, cudnn, product
from tvmscope.cuda.reference import reference
from tvmscope.cuda.units import Matmul, Unit
from tvmscope.cuda.winners import Winner, Winners
from tvmscope.errors import RunError, UsageError
from tvmscope.runtime import cubins, load_model
from tvmscope.runtime.load_model import LoadError
from tvmscope.stages.options import Options
from tvmscope.storage.files import digest_file

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

GPU = targets.resolve("cuda:sm_90")
RNG = np.random.default_rng(0)
W, B = (RNG.standard_normal(shape).astype(np.float32) for shape in ((16, 24), (24,)))
X = RNG.standard_normal((6, 16)).astype(np.float32)
CALL = product.config(1, "nk")


def network() -> tvm.IRModule:
    """relu(x w + b)."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, relax.const(W)))
            y = builder.emit(relax.op.add(y, relax.const(B)))
            out = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(out)
    return builder.get()


def unit_of(precision: Any) -> Unit:
    found = placed_units.lowered(network(), CompileOptions(precision=precision))
    (unit,) = placed_units.placed(found.module)
    return unit


def chosen(unit: Unit) -> dict[str, Choice]:
    candidate = Candidate(params=to_json(CALL))
    return {
        unit.key: Choice(candidate=candidate, source="here", cpu="a GPU", threads=1, date="today")
    }


def config_of(module: tvm.IRModule) -> Config:
    functions = (f for _, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc))
    (found,) = [placed for f in functions if (placed := emit.read(f)) is not None]
    return found[1]


@pytest.mark.parametrize("precision", [FLOAT16, FLOAT32])
def test_a_record_names_it_and_the_option_allows_it(precision: Any) -> None:
    choices = chosen(unit_of(precision))
    allowed = CompileOptions(precision=precision, choices=choices, library=True)
    lowered = placed_units.lowered(network(), allowed)
    assert config_of(lowered.module) == CALL
    (got,) = placed_units.run(lowered.module, X)
    assert np.abs(got - np.maximum(X @ W + B, 0)).max() < 3e-2
    for other in (
        replace(allowed, library=False),
        replace(allowed, overrides={"library": False}),
        replace(allowed, overrides={"records": False}),
        replace(allowed, choices={}),
    ):
        assert not config_of(placed_units.lowered(network(), other).module).of_library


def test_a_large_product_without_a_record_is_the_librarys() -> None:
    large = Matmul(dtype="float16", m=640, n=1504, k=1000)

    def template(unit: Unit, **more: Any) -> str:
        config = choose.Chooser(GPU, {}, recorded=False, **more)(unit)
        assert config is not None
        return config.template

    assert template(large, library=True) == "cublaslt"
    assert template(large, library=("cudnn",)) == template(large) == "matmul"
    for other in (replace(large, m=64), replace(large, dtype="float32", math="tf32x3")):
        assert template(other, library=True) == "matmul"


def test_a_shipped_record_has_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unit = unit_of(FLOAT16)
    own = choose.Chooser(GPU, {}, recorded=False)(unit)
    assert own is not None
    tile = replace(own, stages=own.stages + 1 if own.stages < 5 else 3)
    record = Winner(config=tile, cold_us=2.0, hot_us=2.0, gpu="H200", call=CALL, call_cold_us=1.0)
    Winners({unit.key: record}).save(tmp_path / "sm_90.jsonl")
    monkeypatch.setattr(choose, "SHIPPED", tmp_path)
    assert choose.Chooser(GPU, {}, library=True)(unit) == CALL
    without = choose.Chooser(GPU, {})(unit)
    assert without is not None
    assert replace(without, pdl=0) == replace(tile, pdl=0)


def test_the_default_is_what_this_machine_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cublaslt, "MAJORS", (99,))
    monkeypatch.setattr(cudnn, "MAJORS", (99,))
    assert not Options.of().compile.library
    assert Options.of(library=True).compile.library
    (tmp_path / "libcublasLt.so.99").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert Options.of().compile.library == ("cublaslt",)
    (tmp_path / "libcudnn.so.99").write_bytes(b"")
    assert Options.of().compile.library == ("cublaslt", "cudnn")
    assert not Options.of(library=False).compile.library
    with pytest.raises(UsageError, match="unknown library 'cublas'; there are: cublaslt, cudnn"):
        Options.of(library=("cublas",))


def test_searches_try_it_where_it_is_allowed(tmp_path: Path) -> None:
    lowered = placed_units.lowered(network(), CompileOptions(precision=FLOAT16)).module
    functions = (f for _, f in lowered.functions_items() if isinstance(f, tvm.tirx.PrimFunc))
    (func,) = (f for f in functions if emit.read(f) is not None)
    for allowed in (False, True):
        task = unit_tasks.task_of(func, "matmul", 1, (), GPU, tmp_path, library=allowed)
        assert task is not None
        calls = [c for c in task.candidates[:16] if c.params.get("template") == "cublaslt"]
        assert len(calls) == (8 if allowed else 0)
    placed = unit_tasks.read(Path(task.lowerings[0].function))
    assert placed is not None
    unit_tasks.build(*placed, calls[0], GPU, tmp_path / "call.so")
    unit, made = unit_tasks.kernel_file.read(tmp_path / "call.so")
    assert isinstance(made, library.LibraryCall)
    assert made == library.call_of(unit, product.config(0))


def test_its_code_is_the_librarys() -> None:
    options = CompileOptions(precision=FLOAT16, choices=chosen(unit_of(FLOAT16)), library=True)
    module = placed_units.lowered(network(), options).module
    functions = (f for _, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc))
    (func,) = (f for f in functions if emit.read(f) is not None)
    nowhere: Any = None
    for kind in ("cuda", "ptx", "sass"):
        with pytest.raises(UsageError, match=r"a call of NVIDIA's library .cublaslt, algorithm 1"):
            kernel_code._generated(nowhere, func, kind)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table with one call, of `relu(x w + b)` in float32, as `compile-units` leaves it."""
    options = CompileOptions(precision=FLOAT32, choices=chosen(unit_of(FLOAT32)), library=True)
    made = tvm.target.Target(targets.to_tvm(GPU), host={"kind": "llvm"})
    from tvmscope.compiler import pipeline

    lowered = pipeline.run(network(), GPU, made, options)
    assert not lowered.generated
    (kernel,) = [k for k in lowered.kernels if k.rule == "cublaslt"]
    assert [line.text for line in kernel.tree[0].body] == [CALL.label]
    cubins.save({}, tmp_path, lowered.library_calls)
    return tmp_path


def test_the_table_says_what_call_it_is(folder: Path) -> None:
    (entry,) = json.loads((folder / "cubins.json").read_text())
    (read,) = cubins.read(folder)
    assert read.library is not None
    call = entry["library"]
    assert (call["m"], call["n"], call["k"]) == (6, 24, 16)
    assert (call["library"], call["dtype"], call["sums"]) == ("cublaslt", "float32", "float32")
    assert (call["activation"], call["algorithm"]) == ("relu", 1)
    assert call["arguments"] == ["input", "weight", "bias", "output", "workspace"]
    assert call["b"] == {"pitch": 16, "transposed": True, "stride": 0, "offset": 0}
    assert entry["what"] == CALL.label
    assert (folder / "cublaslt.py").read_text() == Path(cublaslt.__file__).read_text()
    assert "tvmscope" not in {
        line.split()[1].split(".")[0]
        for line in (folder / "cublaslt.py").read_text().splitlines()
        if line.startswith(("import ", "from "))
    }


class Driver:
    """A driver whose calls all succeed."""

    current = 0

    def cuCtxGetDevice(self, out: Any) -> int:  # noqa: N802 - CUDA's name
        out._obj.value = self.current
        return 0

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0


def with_driver(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:
    """A fake driver and a fake (or no) library; all else is loaded as ever."""
    true = ctypes.CDLL

    def load(name: str, *rest: Any) -> Any:
        if "libcuda.so" in name:
            return Driver()
        if "libcublasLt" in name:
            if library is None:
                raise OSError(f"{name}: cannot open shared object file")
            return library
        return true(name, *rest)

    monkeypatch.setattr(ctypes, "CDLL", load)


def test_the_loader_registers_a_function_that_makes_the_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fake = ctypes.CDLL(str(fake_cublaslt.build(tmp_path_factory.mktemp("fake"))))
    with_driver(monkeypatch, fake)
    (entry,) = json.loads((folder / "cubins.json").read_text())
    load_model.register_calls([entry], folder, 0)
    weight, out = np.ascontiguousarray(W.T), np.full((6, 24), np.nan, np.float32)
    workspace = np.empty(entry["library"]["workspace_bytes"], np.uint8)
    packed = tvm_ffi.get_global_func(entry["name"])
    arrays = (X, weight, B, out, workspace)
    packed(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))
    unit = Matmul(dtype="float32", m=6, n=24, k=16, math="ieee")
    wanted = np.maximum(reference(unit, {"input": X, "weight": W})[0] + B, 0)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
    assert ctypes.c_uint64.in_dll(fake, "last_algorithm").value == 2
    from tvm_ffi import use_raw_stream

    with use_raw_stream(tvm.cuda(0), 0x1230):
        packed(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))
    assert ctypes.c_uint64.in_dll(fake, "last_stream").value == 0x1230
    load_model.register_calls([entry], folder, 1)  # the same model on a second GPU
    for device, stream in ((1, 0x5550), (0, 0x1230)):
        monkeypatch.setattr(Driver, "current", device)
        with use_raw_stream(tvm.cuda(0), 0x1230), use_raw_stream(tvm.cuda(1), 0x5550):
            packed = tvm_ffi.get_global_func(entry["name"])
            packed(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))
        assert ctypes.c_uint64.in_dll(fake, "last_stream").value == stream


def test_a_missing_library_is_an_error_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_driver(monkeypatch, None)
    (entry,) = json.loads((folder / "cubins.json").read_text())
    words = r"calls cuBLASLt, .*pip install nvidia-cublas .*--no-library"
    with pytest.raises(LoadError, match=words):
        load_model.register_calls([entry], folder, 0)
    with pytest.raises(RunError, match=words):
        cubins.register(tvm, folder)


def test_a_folder_without_the_file_that_calls_is_refused(folder: Path) -> None:
    (folder / "model.so").write_bytes(b"x")
    meta = {
        "library_digest": digest_file(folder / "model.so"),
        "generated_digest": digest_file(folder / "cubins.bin"),
        "libraries": product.NEEDS,
    }
    load_model.check_files(folder, meta)
    shutil.move(folder / "cublaslt.py", folder / "other.py")
    with pytest.raises(LoadError, match=r"no cublaslt\.py"):
        load_model.check_files(folder, meta)
