"""Torch sources: files, factories, exported programs, in-memory modules, Hugging Face folders."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest

from tvmscope.errors import BackendUnavailable, ImportModelError, RunError, UsageError
from tvmscope.models import api
from tvmscope.models.torch_module import load_module, pickle_module

torch = pytest.importorskip("torch")

KERNELBENCH = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(4, width)
    def forward(self, x, bias):
        return self.fc(x) + bias
def get_init_inputs():
    return [3]
def get_inputs():
    return [torch.rand(2, 4), torch.rand(3)]
"""

NESTED = """
import dataclasses
@dataclasses.dataclass
class Out:
    total: torch.Tensor
    parts: list
    count: int = 2
class Net(nn.Module):
    def forward(self, pair, scale, *, table=None, ids, flag):
        rows = table["w"][ids]
        total = (pair[0] + pair[1]) * scale + rows
        return Out(total, [pair[0] * flag, rows])
def make():
    pair, table = (torch.randn(2, 3), torch.randn(2, 3)), {"w": torch.randn(5, 3)}
    flag, ids = torch.ones(3).bool(), torch.tensor([1, 4])
    return Net(), dict(pair=pair, scale=2.0, flag=flag, table=table, ids=ids)
"""

CAPITALS = """
class Model(nn.Module):
    def forward(self, A, a, *Rest):
        return A - a + Rest[0] * Rest[1]
def get_inputs():
    return [torch.rand(2, 4) for _ in range(4)]
"""

TUPLES = """
class Net(nn.Module):
    def forward(self, x, y):
        return {"sum": x + y, "rest": (x * y, [x - y])}, x.argmax(-1)
def make():
    return Net(), (torch.randn(2, 3), torch.randn(2, 3))
"""


def outputs_of(folder):
    module, inputs, flatten = load_module(str(folder))
    assert not module.training
    with torch.no_grad():
        return {n: t.numpy() for n, t in flatten(module(*inputs)).items()}


def assert_reference(folder):
    reference, outputs = np.load(folder / "reference.npz"), outputs_of(folder)
    assert list(outputs) == reference.files
    for name, value in outputs.items():
        np.testing.assert_array_equal(value, reference[name])


def test_a_kernelbench_file_gives_names_inputs_and_reference(prepare, write_py):
    model, folder = prepare(write_py(KERNELBENCH), need_onnx=True)
    assert model.shapes == {"x": (2, 4), "bias": (3,)}
    assert (model.name, model.weights, model.format) == ("tiny", "file", "torch")
    assert [(s.name, s.shape) for s in model.outputs] == [("output_0", (2, 3))]
    graph = onnx.load(folder / "model.onnx").graph
    assert [v.name for v in graph.input] == ["x", "bias"]
    assert [v.name for v in graph.output] == ["output_0"]
    assert_reference(folder)


def test_the_same_source_gives_the_same_digest_and_inputs_in_any_process(
    prepare, write_py, tmp_path
):
    path = write_py(KERNELBENCH)
    model, folder = prepare(path, "here")
    code = (
        "import sys; from tvmscope.models.prepare import prepare; "
        "from tvmscope.core.options import LoadOptions; "
        "print(prepare(sys.argv[1], sys.argv[2], LoadOptions(need_onnx=False)).digest)"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "there")]
    assert subprocess.check_output(command, text=True).strip() == model.digest
    for name in ("inputs.npz", "reference.npz"):
        assert (folder / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    assert prepare(path, "other", seed=1)[0].digest != model.digest


def test_keywords_nesting_constants_and_dataclasses_are_flattened(prepare, write_py):
    model, folder = prepare(f"{write_py(NESTED)}:make", need_onnx=True)
    assert [s.name for s in model.inputs] == ["pair_0", "pair_1", "flag", "table_w", "ids"]
    assert [s.name for s in model.outputs] == ["total", "parts.0", "parts.1"]
    assert [s.dtype for s in model.inputs][2:] == ["bool", "float32", "int64"]
    program = torch.export.load(folder / "model.pt2")
    assert list(program.graph_signature.user_inputs) == [s.name for s in model.inputs]
    graph = onnx.load(folder / "model.onnx").graph
    assert [v.name for v in graph.output] == ["total", "parts.0", "parts.1"]
    assert_reference(folder)


def test_parameters_in_capital_letters_and_star_arguments_keep_their_names(prepare, write_py):
    model, folder = prepare(write_py(CAPITALS), need_onnx=True)
    assert [s.name for s in model.inputs] == ["A", "a", "Rest_0", "Rest_1"]
    graph = onnx.load(folder / "model.onnx").graph
    assert [v.name for v in graph.input] == ["A", "a", "Rest_0", "Rest_1"]
    assert_reference(folder)


def test_nested_tuples_and_dicts_are_named_by_path(prepare, write_py):
    model, folder = prepare(f"{write_py(TUPLES)}:make")
    names = [s.name for s in model.outputs]
    assert names == ["output_0.sum", "output_0.rest.0", "output_0.rest.1.0", "output_1"]
    program = torch.export.load(folder / "model.pt2")
    assert len(program.graph_signature.user_outputs) == 4
    assert_reference(folder)


def test_batch_size_and_shapes_reach_the_program(prepare, write_py):
    model, folder = prepare(f"{write_py(TUPLES)}:make", batch_size=5)
    assert model.shapes == {"x": (5, 3), "y": (5, 3)}
    assert_reference(folder)
    shapes = {"x": (7, 3), "y": (1, 3)}
    assert prepare(f"{write_py(TUPLES)}:make", "b", shapes=shapes)[0].shapes == shapes
    with pytest.raises(UsageError, match="inputs: x, y"):
        prepare(f"{write_py(TUPLES)}:make", shapes={"z": (1,)})
    with pytest.raises(UsageError, match=r"fails in PyTorch on x \(7, 4\).*; check --shapes"):
        prepare(f"{write_py(TUPLES)}:make", shapes={"x": (7, 4)})


def test_an_inputs_file_is_used(prepare, write_py, tmp_path):
    arrays = {name: np.full((2, 3), 2.0, np.float32) for name in "xy"}
    np.savez(tmp_path / "in.npz", **arrays)
    _, folder = prepare(f"{write_py(TUPLES)}:make", inputs_file=str(tmp_path / "in.npz"))
    np.testing.assert_array_equal(np.load(folder / "reference.npz")["output_0.sum"], 4.0)


def test_an_exported_program_keeps_its_names_and_dynamic_batch(prepare, tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    batch = {"input": {0: torch.export.Dim("batch", max=64)}}
    program = torch.export.export(net, (torch.randn(2, 4),), dynamic_shapes=batch)
    torch.export.save(program, tmp_path / "net.pt2")
    model, folder = prepare(tmp_path / "net.pt2", batch_size=8)
    assert model.shapes == {"input": (8, 4)}
    assert model.weights == "file"
    module, inputs, flatten = load_module(str(folder))
    np.testing.assert_array_equal(
        flatten(module(*inputs))["output_0"].detach(), np.load(folder / "reference.npz")["output_0"]
    )
    (tmp_path / "cut.pt2").write_bytes((tmp_path / "net.pt2").read_bytes()[:200])
    with pytest.raises(ImportModelError, match=r"torch\.export\.save"):
        prepare(tmp_path / "cut.pt2")


def test_a_module_in_memory_is_pickled(prepare, tmp_path):
    class Local(torch.nn.Module):
        def forward(self, a, b):
            return a - b

    inputs = {"b": torch.ones(2), "a": torch.zeros(2)}
    pickle_module(Local(), inputs, tmp_path / "given.pkl")
    model, folder = prepare("Local", pickled=tmp_path / "given.pkl")
    (tmp_path / "given.pkl").unlink()
    assert (model.name, model.shapes) == ("Local", {"b": (2,), "a": (2,)})
    np.testing.assert_array_equal(outputs_of(folder)["output_0"], -1.0)
    with pytest.raises(UsageError, match="give a tensor"):
        pickle_module(Local(), 3, tmp_path / "x.pkl")


def test_changed_weights_are_refused(prepare, write_py):
    path = write_py(KERNELBENCH)
    _, folder = prepare(path)
    path.write_text(path.read_text().replace("nn.Linear(4, width)", "nn.Linear(4, width).double()"))
    with pytest.raises(RunError, match="prepare it again"):
        load_module(str(folder))


@pytest.mark.parametrize(
    ("text", "suffix", "error", "expected"),
    [
        ("x = 1", "", UsageError, r"no Model\(\)"),
        ("x = 1", ":make", UsageError, r"no make\(\)"),
        ("def make(): return nn.ReLU()", ":make", UsageError, r"no get_inputs\(\)"),
        ("def make(): return 3, ()", ":make", UsageError, "not an nn.Module"),
        ("def make(): return nn.ReLU(), ()", ":make", UsageError, "no inputs"),
        ("def make(): return nn.ReLU(), (torch.ones(1),) * 3", ":make", UsageError, "do not fit"),
        ("1 / 0", "", ImportModelError, "ZeroDivisionError"),
        ("def (", "", ImportModelError, "SyntaxError"),
    ],
)
def test_files_that_do_not_fit_are_explained(prepare, write_py, text, suffix, error, expected):
    with pytest.raises(error, match=expected):
        prepare(f"{write_py(text)}{suffix}")


def test_what_torch_cannot_export_is_explained(prepare, write_py):
    text = """
class Net(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x
def make():
    return Net(), torch.randn(3)
"""
    with pytest.raises(ImportModelError, match=r"torch\.export cannot capture .*tiny\.py:make"):
        prepare(f"{write_py(text)}:make")


def test_a_failed_onnx_export_is_a_reason_not_the_end(prepare, write_py, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no such operator\nin ONNX")

    monkeypatch.setattr(torch.onnx, "export", fail)
    _, folder = prepare(write_py(KERNELBENCH), need_onnx=True)
    assert (folder / "onnx_error.txt").read_text() == "RuntimeError: in ONNX\n"
    assert not (folder / "model.onnx").exists()


def test_a_dead_output_is_noted(prepare, write_py):
    text = "def make(): return nn.Hardtanh(0.0, 1e-30), torch.randn(2, 3)"
    assert "proves little" in prepare(f"{write_py(text)}:make")[0].notes[0]


def test_a_missing_library_names_the_command():
    with pytest.raises(BackendUnavailable, match=r"pip install 'tvmscope\[torch\]'"):
        api.require("a_library_that_is_not_there")


def write_hf(folder, **config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return f"hf:{folder}"


TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def test_a_hugging_face_folder_gives_named_inputs_and_outputs(prepare, tmp_path):
    pytest.importorskip("transformers")
    source = write_hf(tmp_path / "bert", model_type="bert", vocab_size=99, **TINY)
    model, folder = prepare(source)
    assert model.shapes == {"input_ids": (1, 128), "attention_mask": (1, 128)}
    assert [s.name for s in model.outputs] == ["last_hidden_state", "pooler_output"]
    assert model.weights == "random"
    assert "no weights" in model.notes[0]
    assert np.load(folder / "inputs.npz")["input_ids"].max() < 99
    assert_reference(folder)


def test_a_hugging_face_image_model_takes_pixels(prepare, tmp_path):
    pytest.importorskip("transformers")
    source = write_hf(tmp_path / "vit", model_type="vit", image_size=32, patch_size=16, **TINY)
    assert prepare(source)[0].shapes == {"pixel_values": (1, 3, 32, 32)}


def test_an_unreachable_hugging_face_model_is_explained(prepare, tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(ImportModelError, match="hf:FOLDER"):
        prepare("hf:some-org/does-not-exist")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImportModelError, match="check the folder"):
        prepare(f"hf:{tmp_path / 'empty'}")
