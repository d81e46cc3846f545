"""Units that cuBLASLt computes: which, by what call, and the call itself on a library of ours."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from interpreted import draw

from support import fake_cublaslt
from tvmscope.cuda.binding import bind
from tvmscope.cuda.config import Config, from_json, to_json
from tvmscope.cuda.cubins import kernel_file
from tvmscope.cuda.gpus import gpu_of
from tvmscope.cuda.library import cublaslt
from tvmscope.cuda.library.cublaslt import Library, LibraryError
from tvmscope.cuda.library.product import call_of, config, configs, why_not
from tvmscope.cuda.packing import pack_weight
from tvmscope.cuda.reference import output_values, reference
from tvmscope.cuda.shortlist import best
from tvmscope.cuda.space import why_illegal
from tvmscope.cuda.units import Conv2d, Epilogue, Matmul, Matrix, Pool, Unit, View
from tvmscope.cuda.winners import distil, load_winners
from tvmscope.errors import UsageError

H200 = gpu_of("sm_90")
PRODUCT = Matmul(dtype="float16", m=7, n=24, k=16)
POINTWISE = Conv2d(dtype="float16", n=2, h=3, w=5, c=16, oc=8, r=1, s=1)
FLOAT32 = Matmul(dtype="float32", m=5, n=6, k=7, math="tf32x3")
EVERYTHING = Epilogue(bias=True, residual="before", activation="relu")
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ctypes.CDLL(str(fake_cublaslt.build(tmp_path_factory.mktemp("cublaslt"))))


def launched(fake: Any, unit: Unit, chosen: Config, stream: int = 0) -> tuple[Any, Any]:
    """What the call writes, and the reference."""
    numpy_type = lambda name: ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)  # noqa: E731
    arguments = bind(unit, chosen).arguments
    given = {k: v.astype(numpy_type(_dtype(unit, k))) for k, v in draw(unit).items()}
    wanted = reference(unit, given)
    arrays = {}
    for tensor in arguments:
        array = given.get(tensor.role)
        if array is None:
            array = np.full(tensor.shape, np.nan, numpy_type(tensor.dtype))
        packed = pack_weight(unit, chosen, array) if tensor.role == "weight" else array
        arrays[tensor.role] = np.ascontiguousarray(packed.astype(numpy_type(tensor.dtype)))
    product = Library(fake).product(call_of(unit, chosen).to_json(), strict=True)
    product.launch([arrays[t.role].ctypes.data for t in arguments], stream)
    product.close()
    return output_values(unit, arrays["output"]), wanted


def _dtype(unit: Unit, role: str) -> str:
    tensor = unit.tensor(role)
    assert tensor is not None
    return tensor.dtype


@pytest.mark.parametrize(
    "unit",
    [
        PRODUCT,
        replace(PRODUCT, epilogue=EVERYTHING),
        replace(PRODUCT, epilogue=Epilogue(bias=True, activation="gelu_tanh"), scale=0.5),
        replace(PRODUCT, epilogue=Epilogue(residual="before")),
        replace(PRODUCT, epilogue=Epilogue(activation="relu", output="float32")),
        replace(PRODUCT, dtype="bfloat16", epilogue=EVERYTHING),
        replace(PRODUCT, m=1, epilogue=Epilogue(bias=True)),
        replace(PRODUCT, y=Matrix(row=40, column=1, offset=8), a=Matrix(row=32, column=1)),
        replace(PRODUCT, z=Matrix(row=40, column=1), epilogue=EVERYTHING),
        FLOAT32,
        replace(FLOAT32, math="ieee", epilogue=EVERYTHING),
        replace(FLOAT32, a=Matrix(row=1, column=5)),
        replace(FLOAT32, weight=False, b=Matrix(row=1, column=7)),
        replace(FLOAT32, weight=False, batch=(2, 3), epilogue=Epilogue(residual="before")),
        replace(
            FLOAT32,
            weight=False,
            batch=(1, 3),
            a=Matrix(row=21, column=1, inner=7),
            b=Matrix(row=18, column=1, inner=6),
        ),
        POINTWISE,
        replace(
            POINTWISE,
            input=View(pitch=48, offset=16),
            output=View(pitch=24, offset=8),
            residual=View(pitch=16, offset=8),
            epilogue=EVERYTHING,
        ),
    ],
    ids=lambda unit: unit.label,
)
def test_the_call_computes_the_unit(unit: Unit, fake: Any) -> None:
    assert why_not(unit) is None
    for chosen in configs(unit, 2):
        got, wanted = launched(fake, unit, chosen)
        error = np.abs(got.astype(np.float64).reshape(wanted.shape) - wanted).max()
        assert error <= TOLERANCE[unit.dtype] * np.abs(wanted).max(), chosen.label


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        (replace(PRODUCT, epilogue=Epilogue(activation="gelu")), "no gelu"),
        (replace(PRODUCT, epilogue=Epilogue(activation="silu")), "no silu"),
        (replace(PRODUCT, epilogue=Epilogue(activation="relu6")), "no relu6"),
        (
            replace(PRODUCT, epilogue=Epilogue(activation="relu", residual="after")),
            "before the activation",
        ),
        (replace(FLOAT32, epilogue=Epilogue(output="float16")), "as float16"),
        (replace(PRODUCT, epilogue=Epilogue(residual="before", output="float32")), "output's type"),
        (replace(PRODUCT, math="ieee"), "as ieee"),
        (replace(PRODUCT, y=Matrix(row=1, column=7)), "not stored by rows"),
        (replace(PRODUCT, a=Matrix(row=1, column=1)), "overlap"),
        (replace(PRODUCT, a=Matrix(row=16, column=1, offset=3)), "multiple of 16 bytes"),
        (
            replace(
                PRODUCT, weight=False, batch=(2, 3), a=Matrix(row=16, column=1, outer=9, inner=112)
            ),
            "single stride",
        ),
        (replace(POINTWISE, stride=(2, 2)), "no product"),
        (replace(POINTWISE, r=3, s=3), "no product"),
        (replace(POINTWISE, padding=(1, 1, 1, 1)), "no product"),
        (replace(POINTWISE, groups=2), "no product"),
        (Pool(dtype="float16", n=1, h=2, w=2, c=8, form="max", r=2, s=2), "computes pool"),
    ],
)
def test_what_no_call_computes(unit: Unit, why: str) -> None:
    reason = why_not(unit)
    assert reason is not None
    assert why in reason
    assert why_illegal(unit, config(0), H200) == reason
    assert list(configs(unit)) == []
    if not isinstance(unit, Pool):
        with pytest.raises(UsageError, match=r"library|product|bytes|overlap|stride|rows"):
            call_of(unit, config(0))


def test_the_cost_model_never_takes_it() -> None:
    assert why_illegal(PRODUCT, config(3, "nk"), H200) is None
    assert not any(e.config.of_library for e in best(PRODUCT, H200, 25))
    assert len(set(configs(PRODUCT))) == 8
    assert {c.layout for c in configs(PRODUCT)} == {"kn", "nk"}
    assert {c.layout for c in configs(replace(PRODUCT, weight=False))} == {"kn"}
    assert from_json(to_json(config(3, "nk"))) == config(3, "nk")
    assert config(3, "nk").label == "cublaslt, algorithm 3, weights n x k"


def test_workspace_and_bias_are_arguments() -> None:
    unit = replace(PRODUCT, epilogue=Epilogue(bias=True))
    arguments = {t.role: t for t in bind(unit, config(0)).arguments}
    assert list(arguments) == ["input", "weight", "bias", "output", "workspace"]
    assert arguments["bias"].dtype == "float16"
    assert arguments["workspace"].size_bytes == call_of(unit, config(0)).workspace_bytes == 12288
    large = Matmul(dtype="float16", m=4096, n=4096, k=4096)
    assert call_of(large, config(0)).workspace_bytes == 32 << 20
    sliced = replace(POINTWISE, output=View(pitch=640, offset=8))
    (workspace,) = (t for t in bind(sliced, config(0)).arguments if t.role == "workspace")
    assert workspace.size_bytes == call_of(sliced, config(0)).workspace_bytes


def test_the_algorithm_is_a_place_in_the_librarys_list(fake: Any) -> None:
    last = ctypes.c_uint64.in_dll(fake, "last_algorithm")
    stream = ctypes.c_uint64.in_dll(fake, "last_stream")
    launched(fake, PRODUCT, config(2), stream=0x77)
    assert (last.value, stream.value) == (3, 0x77)
    call = call_of(PRODUCT, config(5)).to_json()
    with pytest.raises(LibraryError, match="proposes 3 algorithms for 7x24x16 float16 none, not 6"):
        Library(fake).product(call, strict=True)
    Library(fake).product(call)  # an artifact takes the first
    count = ctypes.c_int.in_dll(fake, "proposals")
    try:
        count.value = 0
        with pytest.raises(LibraryError, match="proposes 0 algorithms"):
            Library(fake).product(call)
    finally:
        count.value = 3


def test_a_library_that_refuses_says_so(fake: Any) -> None:
    refuse = ctypes.c_int.in_dll(fake, "refuse")
    try:
        refuse.value = 1
        with pytest.raises(LibraryError, match=r"cublasLtCreate says 1 .*driver is too old"):
            Library(fake)
    finally:
        refuse.value = 0
    product = Library(fake).product(call_of(PRODUCT, config(0)).to_json())
    with pytest.raises(LibraryError, match="cublasLtMatmul says 7"):
        product.launch([0] * 4)  # no workspace


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cublaslt, "MAJORS", (99, 98))
    assert cublaslt.find() is None
    with pytest.raises(LibraryError, match=r"no libcublasLt\.so\.99 .*pip install nvidia-cublas"):
        cublaslt.load()
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "nvidia" / "cu13" / "lib" / "libcublasLt.so.98"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    assert cublaslt.find() == file
    with pytest.raises(LibraryError, match="no libcublasLt"):
        cublaslt.load()  # it is there, but no library


def test_the_library_is_found_in_a_package(
    fake: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "nvidia" / "cublas" / "lib"
    folder.mkdir(parents=True)
    fake_cublaslt.build(folder)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cublaslt.find() == folder / "libcublasLt.so.13"
    assert Library().version == 130100


def test_a_candidates_file_comes_back(tmp_path: Path) -> None:
    call = call_of(PRODUCT, config(1, "nk"))
    kernel_file.write(tmp_path / "k", PRODUCT, call)
    assert kernel_file.read(tmp_path / "k") == (PRODUCT, call)


def test_a_call_is_recorded_beside_the_best_generated_kernel(tmp_path: Path) -> None:
    tile = Config(template="matmul", m=16, n=16, k=16)
    shared = {"unit": PRODUCT.to_json(), "gpu": "H200", "correct": True}

    def record(call_us: float) -> Any:
        rows = [
            {**shared, "config": to_json(c), "cold_us": [us], "hot_us": [us]}
            for c, us in ((tile, 4.0), (config(0), call_us + 1), (config(5), call_us))
        ]
        distil(rows).save(tmp_path / "r.jsonl")
        (found,) = load_winners(tmp_path / "r.jsonl").by_unit.values()
        return found

    found = record(3.0)
    assert (found.config, found.call, found.call_cold_us) == (tile, config(5), 3.0)
    assert record(3.95).call is None  # not worth a library
