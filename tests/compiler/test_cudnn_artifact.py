"""Artifacts whose convolutions are calls of cuDNN: what they say, and how they are loaded."""

from __future__ import annotations

import ctypes
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from support import fake_cudnn, placed_units
from tvmscope.compiler import pipeline, targets
from tvmscope.compiler.units import choose
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT32
from tvmscope.core.tuning import Candidate, Choice
from tvmscope.cuda.config import to_json
from tvmscope.cuda.library import call as library
from tvmscope.cuda.library import convolution, cudnn, product
from tvmscope.runtime import cubins, load_model
from tvmscope.runtime.load_model import LoadError
from tvmscope.storage.files import digest_file

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

GPU = targets.resolve("cuda:sm_90")
RNG = np.random.default_rng(0)
W, B = (RNG.standard_normal(shape).astype(np.float32) for shape in ((12, 8, 3, 3), (1, 12, 1, 1)))
X = RNG.standard_normal((2, 8, 6, 5)).astype(np.float32)
CALL = convolution.config(1)


def network() -> tvm.IRModule:
    """relu(conv(x, w) + b)."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, relax.const(W), padding=(1, 1)))
            y = builder.emit(relax.op.add(y, relax.const(B)))
            out = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(out)
    return builder.get()


def options(**more: Any) -> CompileOptions:
    """Options with a record that names a call of cuDNN for the network's convolution."""
    found = placed_units.lowered(network(), CompileOptions(precision=FLOAT32)).module
    candidate = Candidate(params=to_json(CALL))
    choice = Choice(candidate=candidate, source="here", cpu="a GPU", threads=1, date="today")
    choices = {unit.key: choice for unit in placed_units.placed(found) if unit.kind == "conv2d"}
    return CompileOptions(precision=FLOAT32, choices=choices, **more)


def calls_of(given: CompileOptions) -> dict[str, Any]:
    made = tvm.target.Target(targets.to_tvm(GPU), host={"kind": "llvm"})
    return dict(pipeline.run(network(), GPU, made, given).library_calls)


@pytest.fixture(scope="module")
def calls() -> dict[str, Any]:
    return calls_of(options(library=True))


@pytest.fixture
def folder(calls: dict[str, Any], tmp_path: Path) -> Path:
    cubins.save({}, tmp_path, calls)
    return tmp_path


def test_the_option_names_the_libraries_that_may_compute() -> None:
    assert calls_of(options(library=("cudnn",)))
    assert not calls_of(options(library=("cublaslt",)))
    assert not calls_of(options(library=False))
    chooser = choose.Chooser(GPU, {}, library=("cublaslt",))
    assert not CALL.is_allowed(chooser.library)


def test_the_table_says_what_call_it_is(folder: Path) -> None:
    (entry,) = json.loads((folder / "cubins.json").read_text())
    (read,) = cubins.read(folder)
    assert isinstance(read.library, convolution.ConvolutionCall)
    call = entry["library"]
    assert (call["library"], call["dtype"], call["algorithm"]) == ("cudnn", "float32", 1)
    assert (call["x"], call["w"], call["y"]) == ([2, 8, 6, 5], [12, 8, 3, 3], [2, 12, 6, 5])
    assert (call["steps"], call["padding"]) == (["bias", "relu"], [1, 1, 1, 1])
    assert (folder / "cudnn.py").read_text() == Path(cudnn.__file__).read_text()
    assert not (folder / "cublaslt.py").exists()
    assert "tvmscope" not in {
        line.split()[1].split(".")[0]
        for line in (folder / "cudnn.py").read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
    assert library.needs([read.library]) == {"cuDNN": "9"}


class Driver:
    """A driver whose calls all succeed."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0


def with_library(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    """A fake driver, cuBLASLt and a fake (or no) cuDNN; all else is loaded as ever."""
    true = ctypes.CDLL

    def load(name: str, *rest: Any) -> Any:
        if "libcuda.so" in name or "libcublasLt" in name:
            return Driver()
        if "libcudnn" in name:
            if fake is None:
                raise OSError(f"{name}: cannot open shared object file")
            return fake
        return true(name, *rest)

    monkeypatch.setattr(ctypes, "CDLL", load)


def test_the_loader_registers_a_function_that_makes_the_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fake = ctypes.CDLL(str(fake_cudnn.build(tmp_path_factory.mktemp("fake"))))
    (ctypes.c_int * 8).in_dll(fake, "notes")[:] = [-1] * 8
    with_library(monkeypatch, fake)
    (entry,) = json.loads((folder / "cubins.json").read_text())
    load_model.register_calls([entry], folder, 0)
    x, w = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (X, W))
    out = np.full((2, 6, 5, 12), np.nan, np.float32)
    workspace = np.empty(entry["library"]["workspace_bytes"], np.uint8)
    packed = tvm_ffi.get_global_func(entry["name"])
    arrays = (x, w, B, out, workspace)
    from tvm_ffi import use_raw_stream

    with use_raw_stream(tvm.cuda(0), 0x1230):
        packed(*(ctypes.c_void_p(a.ctypes.data) for a in arrays))
    assert ctypes.c_uint64.in_dll(fake, "last_stream").value == 0x1230
    assert ctypes.c_uint64.in_dll(fake, "last_engine").value == 2
    padded = np.pad(X, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    wanted = np.maximum(np.einsum("nchwrs,ocrs->nohw", windows, W) + B, 0)
    np.testing.assert_allclose(out.transpose(0, 3, 1, 2), wanted, rtol=1e-4, atol=1e-4)


def test_a_missing_library_is_an_error_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_library(monkeypatch, None)
    (entry,) = json.loads((folder / "cubins.json").read_text())
    with pytest.raises(LoadError, match=r"calls cuDNN, .*pip install nvidia-cudnn.*--no-library"):
        load_model.register_calls([entry], folder, 0)


def test_a_folder_without_the_file_that_calls_is_refused(folder: Path) -> None:
    (folder / "model.so").write_bytes(b"x")
    meta: dict[str, Any] = {
        "library_digest": digest_file(folder / "model.so"),
        "generated_digest": digest_file(folder / "cubins.bin"),
        "libraries": convolution.NEEDS,
    }
    load_model.check_files(folder, meta)
    with pytest.raises(LoadError, match=r"no cublaslt\.py"):
        load_model.check_files(folder, {**meta, "libraries": convolution.NEEDS | product.NEEDS})
    shutil.move(folder / "cudnn.py", folder / "other.py")
    with pytest.raises(LoadError, match=r"no cudnn\.py"):
        load_model.check_files(folder, meta)
