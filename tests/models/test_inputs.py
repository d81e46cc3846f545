"""Inputs: seeded, resampled, or from a file."""

from __future__ import annotations

import numpy as np
import pytest

from tvmscope.core.model import TensorSpec
from tvmscope.core.options import LoadOptions
from tvmscope.errors import UsageError
from tvmscope.models import inputs
from tvmscope.storage.files import write_npz


def test_seeded_values_repeat_and_differ_by_name_and_seed():
    spec = TensorSpec("x", (2, 3), "float32")
    first = inputs.seeded(spec, 0)
    assert first.dtype == np.float32
    assert np.array_equal(first, inputs.seeded(spec, 0))
    assert not np.array_equal(first, inputs.seeded(spec, 1))
    assert not np.array_equal(first, inputs.seeded(TensorSpec("y", (2, 3), "float32"), 0))


@pytest.mark.parametrize(
    ("name", "dtype", "limit", "low", "high"),
    [
        ("ids", "int64", 100, 0, 99),
        ("ids", "int32", None, 0, 1),
        ("image", "uint8", None, 0, 255),
        ("attention_mask", "int64", 100, 1, 1),
        ("token_type_ids", "int64", 100, 0, 0),
        ("position_ids", "int64", 100, 0, 99),
        ("flag", "bool", None, False, True),
    ],
)
def test_integers_stay_in_their_range(name, dtype, limit, low, high):
    values = inputs.seeded(TensorSpec(name, (4, 100), dtype), 0, limit)
    assert values.dtype == dtype
    assert values.shape == (4, 100)
    assert values.min() >= low
    assert values.max() <= high


def test_scalars_are_made():
    assert inputs.seeded(TensorSpec("s", (), "float32"), 0).shape == ()
    assert inputs.seeded(TensorSpec("s", (), "int64"), 0, 5).shape == ()


def test_resampled_values_come_from_the_example():
    example = np.array([[3, 7]], np.int64)
    drawn = inputs.resample(example, (8, 2), 0, "ids")
    assert drawn.shape == (8, 2)
    assert drawn.dtype == np.int64
    assert set(drawn.ravel()) == {3, 7}


def test_batch_size_touches_inputs_that_share_the_batch_and_shapes_win():
    defaults = {"a": (1, 3), "b": (1, 5), "table": (7, 2), "scale": ()}
    options = LoadOptions(batch_size=4, shapes={"b": (2, 6)})
    assert inputs.wanted_shapes(defaults, options) == {
        "a": (4, 3),
        "b": (2, 6),
        "table": (7, 2),
        "scale": (),
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LoadOptions(shapes={"image": (1,)}), "no input 'image'.*inputs: x, mask"),
        (LoadOptions(shapes={"mask_": (1,)}), "did you mean mask"),
        (LoadOptions(batch_size=0), "at least one"),
    ],
)
def test_wrong_shape_requests_are_explained(options, expected):
    with pytest.raises(UsageError, match=expected):
        inputs.wanted_shapes({"x": (1, 2), "mask": (1, 2)}, options)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({}, "lacks the input 'x'"),
        ({"x": np.zeros((1, 2), "f4"), "z": np.zeros(1)}, "no input 'z'"),
        ({"x": np.zeros((1, 3), "f4")}, "--shapes x:1x3"),
        ({"x": np.zeros((1, 2), "f8")}, r"astype\('float32'\)"),
    ],
)
def test_wrong_inputs_files_are_explained(tmp_path, arrays, expected):
    np.savez(tmp_path / "in.npz", **arrays)
    with pytest.raises(UsageError, match=expected):
        inputs.from_file(str(tmp_path / "in.npz"), [TensorSpec("x", (1, 2), "float32")])


def test_unreadable_inputs_files_are_explained(tmp_path):
    with pytest.raises(UsageError, match="no inputs file"):
        inputs.read_npz(str(tmp_path / "none.npz"))
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(UsageError, match="not a readable"):
        inputs.read_npz(str(tmp_path / "bad.npz"))
    np.save(tmp_path / "one.npy", np.zeros(2))
    with pytest.raises(UsageError, match="save it by name"):
        inputs.read_npz(str(tmp_path / "one.npy"))
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    with pytest.raises(UsageError, match="not a readable"):
        inputs.read_npz(str(tmp_path / "objects.npz"))


def test_any_name_can_be_stored(tmp_path):
    arrays = {"file": np.ones(2), "/a/b.0": np.zeros(3), "args": np.array(1.0)}
    write_npz(tmp_path / "x.npz", arrays)
    back = inputs.read_npz(str(tmp_path / "x.npz"))
    assert {n: a.tolist() for n, a in back.items()} == {n: a.tolist() for n, a in arrays.items()}
