"""Pictures land on the input where the placement says, and numbers come out as the config says."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from tvmscope.core.model import TensorSpec
from tvmscope.core.vision import PRESETS, Anchors, Preprocess, Vision
from tvmscope.errors import UsageError
from tvmscope.images.preprocess import frame_of, preprocess, recognise
from tvmscope.storage.codec import decode, encode


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec("x", shape, dtype)


def marked(width: int, height: int, box: tuple[int, int, int, int]) -> Image.Image:
    """Black with a white box."""
    image = Image.new("RGB", (width, height))
    image.paste((255, 255, 255), box)
    return image


@pytest.mark.parametrize("size", [(80, 60), (61, 97), (400, 30), (16, 16)])
@pytest.mark.parametrize("fit", ["stretch", "letterbox", "crop"])
def test_a_box_on_the_input_is_found_again_in_the_picture(size: tuple[int, int], fit: str) -> None:
    width, height = size
    box = (width * 4 // 10, height * 4 // 10, width * 6 // 10, height * 6 // 10)
    how = Preprocess(fit=fit, fill=0, crop=0.9)  # type: ignore[arg-type]
    array, placement = preprocess(marked(width, height, box), spec(1, 3, 64, 96), how)
    ys, xs = np.nonzero(array[0, 0] > 127)
    corners = np.array([[xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]], float)
    found = placement.to_picture(corners)[0]
    tolerance = 1 + 1 / min(placement.scale)  # half a pixel of the input and one of the picture
    left, top, right, bottom = placement.to_picture(np.array([[0.0, 0.0, 96.0, 64.0]]))[0]
    visible = np.clip(box, [left, top] * 2, [right, bottom] * 2)  # a crop may cut it
    assert np.abs(found - visible).max() <= tolerance


def test_letterbox_keeps_proportions_and_fills_the_rest() -> None:
    array, placement = preprocess(
        Image.new("RGB", (200, 100), (255, 255, 255)),
        spec(1, 3, 64, 64),
        Preprocess(fit="letterbox"),
    )
    assert placement.scale == (0.32, 0.32)
    assert (array[0, :, 16:48] == 255).all()
    assert (array[0, :, :16] == 114).all()
    assert (array[0, :, 48:] == 114).all()


@pytest.mark.parametrize("fit", ["stretch", "letterbox", "crop"])
@pytest.mark.parametrize("size", [(1, 1), (20_000, 1), (1, 3_000), (20_000, 40)])
def test_extreme_sizes(fit: str, size: tuple[int, int]) -> None:
    image = Image.new("RGB", size, (10, 20, 30))
    array, placement = preprocess(image, spec(1, 3, 32, 32), Preprocess(fit=fit))  # type: ignore[arg-type]
    assert array.shape == (1, 3, 32, 32)
    whole = placement.to_picture(np.array([[-1e6, -1e6, 1e6, 1e6]]))[0]
    assert whole.tolist() == [0, 0, *size]


def test_scale_mean_and_std_in_order() -> None:
    image = Image.new("RGB", (4, 4), (51, 102, 255))
    how = Preprocess(scale=1 / 255, mean=(0.1, 0.2, 0.5), std=(0.5, 0.25, 2.0))
    array, _ = preprocess(image, spec(1, 3, 2, 2), how)
    np.testing.assert_allclose(array[0, :, 0, 0], [0.2, 0.8, 0.25], rtol=1e-6)


def test_layouts_and_types() -> None:
    image = Image.new("RGB", (4, 4), (1, 2, 3))
    first, _ = preprocess(image, spec(1, 3, 5, 7), Preprocess())
    last, _ = preprocess(image, spec(1, 5, 7, 3), Preprocess())
    np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), last)
    raw, _ = preprocess(image, spec(1, 5, 7, 3, dtype="uint8"), Preprocess())
    assert raw.dtype == np.uint8
    assert raw[0, 0, 0].tolist() == [1, 2, 3]
    half, _ = preprocess(image, spec(1, 3, 5, 7, dtype="float16"), Preprocess(scale=0.5))
    assert half.dtype == np.float16
    grey, _ = preprocess(image, spec(1, 1, 5, 7), Preprocess())
    assert grey.shape == (1, 1, 5, 7)


def test_the_layout_can_be_named_where_the_shape_fits_both() -> None:
    assert frame_of(spec(1, 3, 8, 3)).layout == "NCHW"
    frame = frame_of(spec(1, 3, 8, 3), "NHWC")
    assert (frame.layout, frame.height, frame.width) == ("NHWC", 3, 8)


@pytest.mark.parametrize(
    ("shape", "words"),
    [((8, 3, 9, 9), "--batch-size 1"), ((1, 10), "does not take"), ((1, 7, 9, 9), "does not take")],
)
def test_inputs_that_are_no_picture_are_refused(shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        frame_of(spec(*shape))


def test_wrong_channel_counts_are_refused() -> None:
    with pytest.raises(UsageError, match="2 values, the input 3 channels"):
        preprocess(Image.new("RGB", (2, 2)), spec(1, 3, 2, 2), Preprocess(mean=(1.0, 2.0)))


def test_what_a_model_knows_survives_json() -> None:
    vision = Vision(
        task="detect", labels=("a",), head="darknet", anchors=(Anchors(((1.0, 2.0),), 1.05),),
        preprocess=Preprocess(fit="letterbox", mean=(0.1,) * 3),
    )  # fmt: skip
    assert decode(Vision, json.loads(json.dumps(encode(vision)))) == vision


@pytest.mark.parametrize(("shape", "dtype", "classes", "preset"), [
    ((1, 3, 224, 224), "float32", (1, 1000), "imagenet"),
    ((1, 3, 299, 299), "float32", (1, 1000, 1, 1), "imagenet"),
    ((1, 224, 224, 3), "float32", (1, 1000), "inception"),
    ((1, 224, 224, 3), "float32", (1, 1001), "inception"),
    ((1, 3, 224, 224), "uint8", (1, 1000), None),
    ((1, 3, 224, 224), "float32", (1, 10), None),
    ((1, 1, 28, 28), "float32", (1, 1000), None),
    ((1, 128), "float32", (1, 1000), None),
])  # fmt: skip
def test_a_zoo_classifier_is_recognised_by_its_shapes(
    shape: tuple[int, ...], dtype: str, classes: tuple[int, ...], preset: str | None
) -> None:
    inputs = [TensorSpec(name="x", shape=shape, dtype=dtype)]
    outputs = [TensorSpec(name="y", shape=classes, dtype="float32")]
    assert recognise(inputs, outputs) == preset
    assert recognise([*inputs, *inputs], outputs) is None


def test_the_imagenet_preset_is_torchvisions() -> None:
    image = Image.effect_noise((300, 280), 90).convert("RGB")
    spec = TensorSpec(name="x", shape=(1, 3, 224, 224), dtype="float32")
    found, _ = preprocess(image, spec, PRESETS["imagenet"])
    side = min(image.size)
    cut = round(side * 0.875)
    left, top = (image.width - cut) // 2, (image.height - cut) // 2
    middle = image.crop((left, top, left + cut, top + cut)).resize((224, 224), 2)
    wanted = (np.asarray(middle, np.float32) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(found[0], wanted.transpose(2, 0, 1), atol=1e-5)
