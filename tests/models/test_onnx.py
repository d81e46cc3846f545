"""ONNX sources: binding, inputs, reference, and files that are broken."""

from __future__ import annotations

import functools
import http.server
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from models.conftest import tensor, write_onnx
from tvmscope.core.model import Prepared
from tvmscope.core.vision import vision_of
from tvmscope.errors import ImportModelError, SchemaError, UsageError
from tvmscope.models import download
from tvmscope.models.folder import read_origin, read_prepared


def test_weights_listed_as_inputs_do_not_count_and_the_batch_becomes_one(prepare, linear_onnx):
    model, folder = prepare(linear_onnx)
    assert model.shapes == {"x": (1, 4)}
    assert model.format == "onnx"
    assert model.weights == "file"
    graph = onnx.load(folder / "model.onnx").graph
    assert [value.name for value in graph.input] == ["x"]
    assert [d.dim_value for d in graph.output[0].type.tensor_type.shape.dim] == [1, 3]
    inputs, reference = (np.load(folder / f"{n}.npz") for n in ("inputs", "reference"))
    np.testing.assert_allclose(reference["y"], inputs["x"][:, :3])
    assert read_prepared(folder).model == model
    with pytest.raises(SchemaError, match="no torch module"):
        read_origin(folder)


def test_the_batch_size_binds_the_batch_symbol(prepare, linear_onnx):
    model, _ = prepare(linear_onnx, batch_size=5)
    assert model.shapes == {"x": (5, 4)}
    assert model.outputs[0].shape == (5, 3)


def test_integer_bool_and_several_outputs(prepare, embedding_onnx):
    model, folder = prepare(embedding_onnx, shapes={"ids": (2, 7)})
    assert model.shapes == {"ids": (2, 7), "mask": (2, 7, 1)}
    assert [s.dtype for s in model.inputs] == ["int32", "bool"]
    assert {s.name: s.shape for s in model.outputs} == {"rows": (2, 7, 2), "masked": (2, 7, 2)}
    ids = np.load(folder / "inputs.npz")["ids"]
    assert ids.min() >= 0
    assert 10 < ids.max() < 50


def test_an_unbound_dimension_names_itself_and_the_flag(prepare, embedding_onnx):
    with pytest.raises(UsageError, match=r"'length' \(number 1\).*--shapes ids:1xN"):
        prepare(embedding_onnx)


def test_an_inputs_file_binds_dynamic_dimensions(prepare, embedding_onnx, tmp_path):
    ids, mask = np.ones((3, 4), np.int32), np.ones((3, 4, 1), bool)
    np.savez(tmp_path / "in.npz", ids=ids, mask=mask)
    model, folder = prepare(embedding_onnx, inputs_file=str(tmp_path / "in.npz"))
    assert model.shapes == {"ids": (3, 4), "mask": (3, 4, 1)}
    np.testing.assert_array_equal(np.load(folder / "inputs.npz")["ids"], ids)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"shapes": {"ids": (2, 7), "mask": (3, 7, 1)}}, "'batch' is 2 elsewhere"),
        ({"shapes": {"ids": (2, 7), "mask": (2, 7, 4)}}, "give 1 for 4, or export"),
        ({"shapes": {"ids": (2,)}}, "is batchxlength in the file; 2 does not fit: give 2 dim"),
        ({"shapes": {"tokens": (2, 7)}}, "no input 'tokens'.*ids, mask"),
    ],
)
def test_shapes_that_do_not_fit_are_explained(prepare, embedding_onnx, options, expected):
    with pytest.raises(UsageError, match=expected):
        prepare(embedding_onnx, **options)


def test_a_fixed_batch_refuses_another(prepare, tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    path = write_onnx(tmp_path / "r.onnx", nodes, [tensor("x", [1, 2])], [tensor("y", [1, 2])])
    with pytest.raises(UsageError, match="fixed at 1"):
        prepare(path, batch_size=2)
    assert prepare(path, batch_size=1)[0].shapes == {"x": (1, 2)}


def test_a_dimension_without_a_name_is_named_by_its_place(prepare, tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    values = [tensor(name, [None, None]) for name in "xy"]
    path = write_onnx(tmp_path / "r.onnx", nodes, values[:1], values[1:])
    with pytest.raises(UsageError, match=r"'x\.1' \(number 1\)"):
        prepare(path)
    assert prepare(path, shapes={"x": (2, 3)})[0].outputs[0].shape == (2, 3)


def test_dimensions_called_by_a_question_mark_are_independent(prepare, tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    values = [tensor(name, ["?", "?"]) for name in "xy"]
    path = write_onnx(tmp_path / "r.onnx", nodes, values[:1], values[1:])
    assert prepare(path, shapes={"x": (2, 3)})[0].outputs[0].shape == (2, 3)


def test_shapes_change_a_fixed_input_where_the_graph_allows_it(prepare, tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("GlobalAveragePool", ["a"], ["y"]),
    ]
    given, result = tensor("x", [1, 2, 4, 4]), tensor("y", [1, 2, 1, 1])
    path = write_onnx(tmp_path / "p.onnx", nodes, [given], [result])
    model = prepare(path, shapes={"x": (3, 2, 6, 5)})[0]
    assert model.shapes == {"x": (3, 2, 6, 5)}
    assert model.outputs[0].shape == (3, 2, 1, 1)


def test_the_node_that_forbids_another_shape_is_named(prepare, tmp_path):
    weight = onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    path = write_onnx(
        tmp_path / "m.onnx", nodes, [tensor("x", [1, 4])], [tensor("y", [1, 3])], [weight]
    )
    with pytest.raises(UsageError, match=r"give 4 for 5.*forbids it: .*product"):
        prepare(path, shapes={"x": (1, 5)})
    assert prepare(path, shapes={"x": (6, 4)})[0].outputs[0].shape == (6, 3)


def test_a_constant_output_is_noted(prepare, tmp_path):
    nodes = [helper.make_node("Sub", ["x", "x"], ["y"])]
    path = write_onnx(tmp_path / "z.onnx", nodes, [tensor("x", [1, 2])], [tensor("y", [1, 2])])
    assert "proves little" in prepare(path)[0].notes[0]


def test_broken_files_are_explained(prepare, linear_onnx, tmp_path):
    whole = linear_onnx.read_bytes()
    cases = {
        "cut.onnx": (whole[: len(whole) // 2], "truncated|not a valid"),
        "garbage.onnx": (b"\xff\xfe this is not protobuf" * 9, "not an ONNX file"),
        "empty.onnx": (b"", "not a valid ONNX model"),
    }
    for name, (data, expected) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ImportModelError, match=expected):
            prepare(tmp_path / name)


def test_an_invalid_graph_is_explained(prepare, tmp_path):
    nodes = [helper.make_node("Relu", ["nowhere"], ["y"])]
    path = write_onnx(tmp_path / "bad.onnx", nodes, [tensor("x", [1])], [tensor("y", [1])])
    with pytest.raises(ImportModelError, match="not a valid ONNX model"):
        prepare(path)


def test_missing_external_data_is_explained(prepare, tmp_path):
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    path = write_onnx(
        tmp_path / "ext.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [tensor("x", [1, 64])],
        [tensor("y", [1, 64])],
        [weight],
        save_as_external_data=True,
        location="ext.data",
        size_threshold=0,
    )
    folder = prepare(path)[1]
    assert sorted(p.name for p in folder.iterdir() if "data" in p.name) == []
    (tmp_path / "ext.data").unlink()
    with pytest.raises(ImportModelError, match="external data is missing"):
        prepare(path)


def test_strings_and_failing_indices_are_explained(prepare, tmp_path):
    nodes = [helper.make_node("Identity", ["s"], ["y"])]
    spec = [tensor(name, [1], TensorProto.STRING) for name in "sy"]
    path = write_onnx(tmp_path / "s.onnx", nodes, spec[:1], spec[1:])
    with pytest.raises(ImportModelError, match="not a numeric tensor"):
        prepare(path)
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    given = [tensor("x", [1, 2]), tensor("i", [64], TensorProto.INT64)]
    path = write_onnx(tmp_path / "g.onnx", nodes, given, [tensor("y", [64, 2])])
    with pytest.raises(ImportModelError, match="--inputs"):
        prepare(path)


def test_digest_repeats_and_follows_shapes(prepare, linear_onnx):
    first, again = prepare(linear_onnx, "a")[0], prepare(linear_onnx, "b")[0]
    assert first.digest == again.digest != prepare(linear_onnx, "c", batch_size=2)[0].digest


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "cache_folder", lambda: tmp_path / "cache")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


def test_a_url_is_cached_with_its_digest(prepare, linear_onnx, server, tmp_path):
    url = f"{server}/linear.onnx"
    with pytest.raises(ImportModelError, match="downloads are off"):
        prepare(url)
    first = prepare(url, offline=False)[0]
    assert prepare(url, offline=True)[0].digest == first.digest
    (cached,) = (tmp_path / "cache").glob("*.onnx")
    cached.write_bytes(b"damaged")
    assert prepare(url, offline=False)[0].digest == first.digest
    with pytest.raises(ImportModelError, match="cannot download"):
        prepare(f"{server}/none.onnx", offline=False)


def names_only(tmp_path, **about):
    """A graph whose metadata says something about pictures."""
    path = write_onnx(
        tmp_path / "seen.onnx",
        [helper.make_node("Relu", ["x"], ["y"])],
        [tensor("x", [1, 3, 8, 8])],
        [tensor("y", [1, 3, 8, 8])],
    )
    model = onnx.load(path)
    onnx.helper.set_model_props(model, about)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("names", ["{1: 'car', 0: 'cat'}", "['cat', 'car']", '["cat", "car"]'])
def test_class_names_and_preprocessing_come_from_the_metadata(prepare, tmp_path, names):
    path = names_only(tmp_path, names=names, task="detect", stride="32")
    model, folder = prepare(path)
    vision = vision_of(Prepared(folder, model))
    assert (vision.labels, vision.task) == (("cat", "car"), "detect")
    assert (vision.preprocess.fit, vision.preprocess.scale) == ("letterbox", 1 / 255)


@pytest.mark.parametrize("names", ["", "__import__('os')", "{'a': 1}", "7", "[" * 500])
def test_metadata_that_says_nothing_is_no_error(prepare, tmp_path, names):
    model, folder = prepare(names_only(tmp_path, names=names))
    assert vision_of(Prepared(folder, model)) is None
