"""What a text names, and what is said about one that names nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tvmscope.errors import UsageError
from tvmscope.models.catalog import built_ins, catalog, failures
from tvmscope.models.resolve import classify

BUILT_IN = ["efficientnet_lite0", "minilm", "mobilenet_v2", "resnet18", "resnet50", "vit_b_16",
            "yolov3", "yolov3_tiny", "yolov4_tiny"]  # fmt: skip


def test_built_ins_are_found_by_their_files():
    assert list(built_ins()) == BUILT_IN
    assert failures() == ()
    assert all(entry.summary and entry.weights for entry in catalog())


def test_catalog_says_how_to_install_what_is_missing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert all("pip install" in (entry.missing or "") for entry in catalog())


def test_classifying_imports_no_heavy_library():
    code = (
        "import sys; from tvmscope.models.resolve import classify; from tvmscope.models.catalog "
        "import catalog; import tvmscope.models.prepare, tvmscope.models.torch_module; "
        "classify('resnet18'); catalog(); "
        "print([m for m in ('torch', 'onnx', 'tvm', 'transformers') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize(
    ("text", "kind", "name", "form"),
    [
        ("resnet50", "builtin", "resnet50", "torch"),
        ("torchvision:resnet34", "torchvision", "resnet34", "torch"),
        ("hf:org/some-model", "hf", "some-model", "torch"),
        ("https://host.test/a/net.onnx?x=1", "onnx", "net", "onnx"),
    ],
)
def test_names_are_classified(text, kind, name, form):
    source = classify(text)
    assert (source.kind, source.name, source.format) == (kind, name, form)


@pytest.mark.parametrize(
    ("file", "suffix", "kind", "attribute"),
    [
        ("a.onnx", "", "onnx", None),
        ("a.pt2", "", "pt2", None),
        ("a.py", "", "python", None),
        ("a.py", ":make", "python", "make"),
    ],
)
def test_files_are_classified(tmp_path, file, suffix, kind, attribute):
    (tmp_path / file).touch()
    source = classify(f"{tmp_path / file}{suffix}")
    assert (source.kind, source.attribute) == (kind, attribute)
    assert source.ref == str((tmp_path / file).resolve())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resnet81", "did you mean resnet18"),
        ("nothing_like_it", "built-in models: efficientnet_lite0"),
        ("weights.pth", "weights without a graph"),
        ("https://host.test/a.zip", "does not end in .onnx"),
        ("hf:", "names no model"),
        ("missing.onnx", "no file 'missing.onnx'"),
    ],
)
def test_what_names_nothing_is_explained(text, expected):
    with pytest.raises(UsageError, match=expected):
        classify(text)


def test_a_misspelt_file_suggests_its_neighbour(tmp_path):
    (tmp_path / "encoder.onnx").touch()
    with pytest.raises(UsageError, match=r"did you mean encoder\.onnx"):
        classify(str(tmp_path / "encodr.onnx"))


def test_a_folder_suggests_hugging_face(tmp_path):
    with pytest.raises(UsageError, match="write hf:"):
        classify(str(tmp_path))
