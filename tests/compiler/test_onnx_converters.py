"""Our own ONNX converters against ONNX's evaluator, on more than its node tests show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tvmscope.compiler import frontends, pipeline, targets
from tvmscope.compiler.frontends.onnx.converters.resize import Axis
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.models.folder import read_prepared
from tvmscope.models.prepare import prepare
from tvmscope.storage.files import write_npz

Array = np.ndarray[Any, Any]
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
)  # fmt: skip
ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def model_of(
    node: onnx.NodeProto, x: Array, constants: dict[str, Array], indices: bool = False
) -> onnx.ModelProto:
    """A graph of one node that reads x, with its other inputs as constants."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    given = [helper.make_tensor_value_info("x", kind, x.shape)]
    sizes = ["found", 3] if indices else [f"y{n}" for n in range(x.ndim)]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.INT64 if indices else kind, sizes)
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "g", given, [result], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    made.ir_version = 10
    return made


def resize_node(scale: bool, **attributes: Any) -> onnx.NodeProto:
    inputs = ["x", "", "scales"] if scale else ["x", "", "", "sizes"]
    return helper.make_node("Resize", inputs, ["y"], **attributes)


def compiled(model: onnx.ModelProto, x: Array, folder: Path, host: Target) -> pipeline.Lowered:
    onnx.save(model, folder / "model.onnx")
    write_npz(folder / "inputs.npz", {"x": x})
    options = LoadOptions(inputs_file=str(folder / "inputs.npz"))
    ready = Prepared(folder / "p", prepare(str(folder / "model.onnx"), str(folder / "p"), options))
    target = tvm.target.Target(targets.to_tvm(host))
    return pipeline.run(frontends.import_model(ready).module, host, target, CompileOptions())


def outputs(lowered: pipeline.Lowered, x: Array, host: Target) -> list[Array]:
    target = tvm.target.Target(targets.to_tvm(host))
    built = tvm.relax.build(lowered.module, target, relax_pipeline=None)
    found = tvm.relax.VirtualMachine(built, tvm.cpu())["main"](tvm.runtime.tensor(x))
    return [found.numpy()] if hasattr(found, "numpy") else [f.numpy() for f in found]


def _nearly_whole(size: int, output: int) -> bool:
    """Whether half-pixel places come within rounding of a whole number without being one."""
    places = (np.arange(output) + 0.5) / (output / size) - 0.5
    off = np.abs(places - np.round(places))
    return bool(((off > 0) & (off < 1e-6)).any())


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 12), output=st.integers(1, 24), mode=st.sampled_from(("linear", "cubic")),
    coordinates=st.sampled_from(COORDINATES), antialias=st.booleans(), outside=st.booleans(),
)  # fmt: skip
def test_taps_and_weights_are_those_of_the_evaluator(
    size: int, output: int, mode: str, coordinates: str, antialias: bool, outside: bool
) -> None:
    # the evaluator divides by zero where a single element is stretched corner to corner
    assume(not (coordinates == "align_corners" and (size == 1 or output == 1)))
    # and takes a neighbour too far where rounding leaves a place just below a whole number
    assume(not _nearly_whole(size, output))
    axis = Axis(
        size, output, output / size, mode=mode, coordinates=coordinates, antialias=antialias,
        exclude_outside=outside,
    )  # fmt: skip
    node = resize_node(
        False, mode=mode, coordinate_transformation_mode=coordinates, antialias=int(antialias),
        exclude_outside=int(outside),
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    evaluator = ReferenceEvaluator(model_of(node, x, {"sizes": np.array([output])}))
    (wanted,) = evaluator.run(None, {"x": x})
    indices, weights = axis.taps()
    np.testing.assert_allclose((x[indices] * weights).sum(1), wanted, rtol=1e-4, atol=1e-5)


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 12), output=st.integers(1, 24), rounding=st.sampled_from(ROUNDING),
    coordinates=st.sampled_from(COORDINATES),
)  # fmt: skip
def test_nearest_neighbours_are_those_of_the_evaluator(
    size: int, output: int, rounding: str, coordinates: str
) -> None:
    assume(not (coordinates == "align_corners" and (size == 1 or output == 1)))
    axis = Axis(size, output, output / size, coordinates=coordinates, nearest=rounding)
    node = resize_node(False, nearest_mode=rounding, coordinate_transformation_mode=coordinates)
    x = np.arange(size, dtype=np.float32)
    evaluator = ReferenceEvaluator(model_of(node, x, {"sizes": np.array([output])}))
    (wanted,) = evaluator.run(None, {"x": x})
    # A position on the edge between two neighbours may fall to either by its last bit.
    edge = np.round(2 * axis.places) / 2
    apart = np.where(np.abs(axis.places - edge) > 1e-9, 0, 1)
    assert np.all(np.abs(axis.neighbours() - wanted) <= apart)


def test_doubling_stays_the_operator_that_convolutions_keep_their_layout_around(
    host: Target, tmp_path: Path
) -> None:
    x = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    scales = {"scales": np.array([1, 1, 2, 2], np.float32)}
    model = model_of(resize_node(True), x, scales)  # half_pixel, yet the same places
    lowered = compiled(model, x, tmp_path, host)
    assert [call.kernel for call in lowered.calls] == ["resize2d"]
    (found,) = outputs(lowered, x, host)
    np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int32"])
def test_a_five_dimensional_resize_of_any_type(dtype: str, host: Target, tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 200, (1, 2, 3, 4, 5)).astype(dtype)
    sizes = {"sizes": np.array([1, 2, 6, 3, 7])}
    model = model_of(resize_node(False, mode="nearest"), x, sizes)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    (found,) = outputs(compiled(model, x, tmp_path, host), x, host)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("given", [("most",), ("most", "iou"), ("most", "iou", "score"), ()])
def test_suppression_has_onnx_defaults(
    center: int, given: tuple[str, ...], host: Target, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    corners = rng.uniform(0, 1, (2, 12, 4)).astype(np.float32)
    scores = rng.uniform(-1, 1, (2, 3, 12)).astype(np.float32)
    values = {"most": np.array([4]), "iou": np.array([0.3], np.float32),
              "score": np.array([0.1], np.float32)}  # fmt: skip
    constants = {"scores": scores, **{name: values[name] for name in given}}
    node = helper.make_node("NonMaxSuppression", ["x", *constants], ["y"], center_point_box=center)
    model = model_of(node, corners, constants, indices=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (wanted,) = session.run(None, {"x": corners})
    (found,) = outputs(compiled(model, corners, tmp_path, host), corners, host)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "bounds",
    [(0.0, 6.0), (-1.0, None), (None, 0.5), (np.nan, 1.0), (-np.inf, 0.25), (None, None)],
    ids=str,
)
def test_clips_between_constants_are_one_operator(
    bounds: tuple[float | None, float | None], tmp_path: Path, host: Target
) -> None:
    x = np.linspace(-8, 8, 60, dtype=np.float32).reshape(3, 20)
    names = ["low" if bounds[0] is not None else "", "high" if bounds[1] is not None else ""]
    values = {n: np.float32(b) for n, b in zip(names, bounds, strict=True) if n}
    node = helper.make_node("Clip", ["x", *names], ["y"])
    model = model_of(node, x, {n: np.asarray(v) for n, v in values.items()})
    limits = [np.nan if b is None else b for b in bounds]
    expected = np.fmin(np.fmax(x, limits[0]), limits[1])
    lowered = compiled(model, x, tmp_path, host)
    np.testing.assert_array_equal(outputs(lowered, x, host)[0], expected)
    module = frontends.import_model(read_prepared(tmp_path / "p")).module
    assert "call_tir" not in module.script()
