"""Units that cuDNN computes: which, by what call, and the call itself on a library of ours."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import library_units
import ml_dtypes
import numpy as np
import pytest
from interpreted import draw

from support import fake_cudnn
from tvmscope.cuda.binding import bind
from tvmscope.cuda.config import Config, from_json, to_json
from tvmscope.cuda.cubins import kernel_file
from tvmscope.cuda.gpus import gpu_of
from tvmscope.cuda.library import call as library
from tvmscope.cuda.library import cudnn, product
from tvmscope.cuda.library.convolution import call_of, config, configs, why_not
from tvmscope.cuda.library.cudnn import Library, LibraryError
from tvmscope.cuda.packing import pack_weight
from tvmscope.cuda.reference import output_values, reference
from tvmscope.cuda.shortlist import best
from tvmscope.cuda.space import why_illegal
from tvmscope.cuda.units import Conv2d, Epilogue, Unit, View
from tvmscope.errors import UsageError

H200 = gpu_of("sm_90")
CONV, PRODUCT = library_units.CONV, library_units.PRODUCT
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ctypes.CDLL(str(fake_cudnn.build(tmp_path_factory.mktemp("cudnn"))))


def launched(fake: Any, unit: Unit, chosen: Config, stream: int = 0) -> tuple[Any, Any]:
    """What the call writes, and the reference."""
    numpy_type = lambda name: ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)  # noqa: E731
    arguments = bind(unit, chosen).arguments
    types = {t.role: t.dtype for t in arguments}
    given = {role: v.astype(numpy_type(types[role])) for role, v in draw(unit).items()}
    wanted = reference(unit, given)
    arrays = {}
    for tensor in arguments:
        array = given.get(tensor.role)
        if array is None:
            array = np.full(tensor.shape, np.nan, numpy_type(tensor.dtype))
        arrays[tensor.role] = np.ascontiguousarray(
            pack_weight(unit, chosen, array) if tensor.role == "weight" else array
        )
    made = Library(fake).convolution(call_of(unit, chosen).to_json(), strict=True)
    pointers = [arrays[t.role].ctypes.data for t in arguments]
    for _ in range(2):  # the second launch has the first one's pointers
        made.launch(pointers, stream)
    made.close()
    return output_values(unit, arrays["output"]), wanted


@pytest.mark.parametrize("unit", library_units.CONVOLUTIONS, ids=lambda unit: unit.label)
def test_the_call_computes_the_unit(unit: Conv2d, fake: Any) -> None:
    assert why_not(unit) is None
    fake_notes(fake, -1)  # engines without tensor cores, as exact products need
    alive = ctypes.c_int.in_dll(fake, "alive")
    before = alive.value
    got, wanted = launched(fake, unit, config(0))
    error = np.abs(got.astype(np.float64).reshape(wanted.shape) - wanted).max()
    assert error <= TOLERANCE[unit.dtype] * np.abs(wanted).max()
    assert alive.value == before


def fake_notes(fake: Any, *notes: int) -> None:
    """The numerical note of each engine; -1 for none."""
    values = (ctypes.c_int * 8).in_dll(fake, "notes")
    for i in range(8):
        values[i] = notes[i] if i < len(notes) else notes[-1]


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        (replace(CONV, epilogue=Epilogue(activation="hardswish")), "no hardswish"),
        (replace(CONV, math="ieee"), "as ieee"),
        (replace(library_units.EXACT, epilogue=Epilogue(output="float16")), "as float16"),
        (replace(CONV, input=View(pitch=48)), "dense"),
        (replace(CONV, output=View(pitch=80, offset=40)), "dense"),
        (library_units.PRODUCT, "for matmul"),
    ],
)
def test_what_no_call_computes(unit: Unit, why: str) -> None:
    reason = why_not(unit)
    assert reason is not None
    assert why in reason
    assert why_illegal(unit, config(0), H200) == reason
    assert list(configs(unit)) == []
    with pytest.raises(UsageError, match=why):
        call_of(unit, config(0))


def test_each_library_has_its_units() -> None:
    pointwise = replace(CONV, r=1, s=1, padding=(0, 0, 0, 0))
    names = [{c.template for c in library.configs(u)} for u in (CONV, pointwise, PRODUCT)]
    assert names == [{"cudnn"}, {"cublaslt", "cudnn"}, {"cublaslt"}]
    assert [library.why_not(u) for u in (CONV, pointwise, PRODUCT)] == [None] * 3
    assert library.why_not(CONV, "cublaslt") == product.why_not(CONV)
    assert why_illegal(CONV, product.config(0), H200) is not None
    assert not any(e.config.of_library for e in best(CONV, H200, 25))
    both = [library.call_of(pointwise, c) for c in (product.config(0), config(0))]
    assert library.needs(both) == {"cublasLt": "12", "cuDNN": "9"}
    assert library.needs(both[1:]) == {"cuDNN": "9"}
    with pytest.raises(UsageError, match="matmul is no library"):
        library.call_of(CONV, Config(template="matmul", m=16, n=16))


def test_an_option_allows_libraries_by_name() -> None:
    tile = Config(template="matmul", m=16, n=16)
    assert [config(0).is_allowed(x) for x in (True, False, ("cudnn",), ("cublaslt",))] == [
        True, False, True, False,
    ]  # fmt: skip
    assert tile.is_allowed(False)
    assert tile.is_allowed(())


def test_its_forms_come_back(tmp_path: Path) -> None:
    assert from_json(to_json(config(3))) == config(3)
    assert config(3).label == "cudnn, algorithm 3"
    unit = replace(CONV, epilogue=Epilogue(bias=True, activation="clip", parameters=(0.0, 1.0)))
    call = call_of(unit, config(1))
    kernel_file.write(tmp_path / "k", unit, call)
    assert kernel_file.read(tmp_path / "k") == (unit, call)
    assert library.from_json(call.to_json()) == call


def test_the_call_says_what_it_computes() -> None:
    unit = replace(
        CONV, c=32, oc=64, groups=4, stride=(2, 1), padding=(1, 0, 2, 1),
        epilogue=library_units.EVERYTHING,
    )  # fmt: skip
    call = call_of(unit, config(2))
    assert (call.x, call.w, call.y) == ((2, 32, 9, 7), (64, 8, 3, 3), (2, 64, 5, 6))
    assert (call.stride, call.padding, call.dilation) == ((2, 1), (1, 0, 2, 1), (1, 1))
    assert (call.steps, call.algorithm) == (("residual", "bias", "relu"), 2)
    assert call.arguments == ("input", "weight", "bias", "residual", "output", "workspace")
    arguments = {t.role: t for t in bind(unit, config(2)).arguments}
    assert tuple(arguments) == call.arguments
    assert arguments["bias"].dtype == "float16"
    assert arguments["workspace"].size_bytes == call.workspace_bytes
    after = replace(unit, epilogue=replace(unit.epilogue, residual="after"))
    assert call_of(after, config(0)).steps == ("bias", "relu", "residual")


def test_the_algorithm_is_a_place_in_the_librarys_list(fake: Any) -> None:
    fake_notes(fake, 0)
    last = ctypes.c_uint64.in_dll(fake, "last_engine")
    stream = ctypes.c_uint64.in_dll(fake, "last_stream")
    launched(fake, CONV, config(2), stream=0x77)
    assert (last.value, stream.value) == (3, 0x77)
    plans = ctypes.c_int.in_dll(fake, "plans")
    before = plans.value
    call = call_of(CONV, config(5)).to_json()
    words = "convolution 2x24x9x7 . 40x24x3x3 float16: cuDNN proposes 3 engines, not 6"
    with pytest.raises(LibraryError, match=words):
        Library(fake).convolution(call, strict=True)
    assert plans.value == before
    Library(fake).convolution(call).close()  # an artifact takes the first
    assert plans.value == before + 1


def test_engines_with_other_numbers_are_left_out(fake: Any) -> None:
    last = ctypes.c_uint64.in_dll(fake, "last_engine")
    fake_notes(fake, 0, 4, -1)  # tensor cores, other bits each time, none
    launched(fake, CONV, config(1))
    assert last.value == 3
    launched(fake, library_units.EXACT, config(0))
    assert last.value == 3
    launched(fake, replace(library_units.EXACT, math="tf32"), config(0))
    assert last.value == 1


def test_a_plan_that_needs_more_workspace_is_left_out(fake: Any) -> None:
    fake_notes(fake, 0)
    wanted = ctypes.c_int64.in_dll(fake, "wanted_bytes")
    call = call_of(CONV, config(1)).to_json()
    try:
        wanted.value = call["workspace_bytes"] + 1
        with pytest.raises(LibraryError, match=r"engine 1: its plan needs .* bytes of workspace"):
            Library(fake).convolution(call, strict=True)
        Library(fake).convolution(call).close()
    finally:
        wanted.value = 256


def test_a_library_that_refuses_says_so(fake: Any) -> None:
    refuse = ctypes.c_int.in_dll(fake, "refuse")
    try:
        refuse.value = 1001
        with pytest.raises(LibraryError, match=r"cuDNN 92700: cudnnCreate says 1001"):
            Library(fake)
    finally:
        refuse.value = 0
    fake_notes(fake, 0)
    call = call_of(CONV, config(0)).to_json()
    words = "finalize of convolution operation says 2000 .BAD_PARAM.: the output's size"
    with pytest.raises(LibraryError, match=f"(?i){words}"):
        Library(fake).convolution({**call, "y": (2, 40, 8, 7)})
    made = Library(fake).convolution(call)
    with pytest.raises(LibraryError, match=r"cudnnBackendExecute of convolution .*no workspace"):
        made.launch([0] * len(call["arguments"]))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cudnn, "MAJORS", (99,))
    assert cudnn.find() is None
    words = r"calls cuDNN, .*no libcudnn\.so\.99 .*pip install nvidia-cudnn-cu13 .*--no-library"
    with pytest.raises(LibraryError, match=words):
        cudnn.load()
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "nvidia" / "cudnn" / "lib" / "libcudnn.so.99"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    assert cudnn.find() == file


def test_a_library_without_cublaslt_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = ctypes.CDLL(str(fake_cudnn.build(tmp_path)))

    def load(name: str) -> Any:
        if "cublasLt" in name:
            raise OSError(f"{name}: cannot open shared object file")
        return fake

    monkeypatch.setattr(ctypes, "CDLL", load)
    with pytest.raises(LibraryError, match=r"cuDNN needs libcublasLt\.so\.13, .*pip install"):
        Library()
