"""The Python API: what a notebook user calls, with a module in memory, a path or a name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

import tvmscope
from support.command import TORCH_NET, save_onnx
from tvmscope.core.artifact import Artifact
from tvmscope.core.session import Session, load
from tvmscope.errors import ImportModelError, UsageError

QUICK = {"backends": "tvmscope", "target": "cpu", "iterations": 2, "warmup": 1}


class Pair(torch.nn.Module):
    """Two inputs by name, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x), ids * 2


@pytest.fixture
def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 6), torch.arange(5)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sessions land under the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_public_names() -> None:
    assert set(tvmscope.__all__) == {"analyze", "bench", "compile", "load_artifact"}


def test_bench_stays_a_function_beside_the_package_of_that_name() -> None:
    from tvmscope.benchmark.run import run

    assert callable(run)
    assert callable(tvmscope.bench)
    assert tvmscope.bench.__module__ == "tvmscope"


def test_import_loads_nothing_heavy() -> None:
    script = "import sys, tvmscope; print({'tvm', 'torch', 'numpy', 'onnx'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_compile_and_load_a_module_in_memory(
    here: Path, inputs: tuple[torch.Tensor, torch.Tensor]
) -> None:
    module = Pair().eval()
    artifact = tvmscope.compile(module, here / "pair", inputs=inputs, target="cpu")
    assert isinstance(artifact, Artifact)
    assert artifact.model == "Pair"
    assert [spec.name for spec in artifact.inputs] == ["x", "ids"]
    assert sorted(f.name for f in (here / "pair").iterdir()) == [
        "kernels.json",
        "kernels.tir.gz",
        "load_model.py",
        "meta.json",
        "model.so",
    ]
    call = tvmscope.load_artifact(here / "pair", threads=1)
    expected = [value.detach().numpy() for value in module(*inputs)]
    for given in (inputs, [t.numpy() for t in inputs]):
        found = call(*given)
        assert list(found) == ["output_0", "output_1"]
        for actual, wanted in zip(found.values(), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # long
def test_modules_take_one_tensor_or_keywords_as_examples(here: Path) -> None:
    layer = torch.nn.Linear(6, 4).eval()
    x = torch.randn(2, 6)
    for name, example in (("a", x), ("b", {"input": x})):
        tvmscope.compile(layer, str(here / name), inputs=example, target="cpu")
        (found,) = tvmscope.load_artifact(str(here / name))(x).values()
        np.testing.assert_allclose(found, layer(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_bench_of_a_module_gives_a_session_and_keeps_it(
    here: Path, inputs: tuple[torch.Tensor, torch.Tensor]
) -> None:
    session = tvmscope.bench(Pair(), inputs=inputs, **QUICK)
    assert isinstance(session, Session)
    (result,) = session.results
    assert (result.task.variant.backend, result.status) == ("tvmscope", "ok")
    assert result.accuracy is not None
    assert result.accuracy.reference == "torch"
    (folder,) = (here / "results").iterdir()
    assert folder.name.startswith("Pair-cpu-")
    assert load(folder) == session


def test_bench_of_several_models_gives_a_list_and_records_failures(here: Path) -> None:
    relu = save_onnx(here / "relu.onnx", helper.make_node("Relu", ["x"], ["y"]))
    (here / "broken.onnx").write_bytes(b"no model")
    sessions = tvmscope.bench(
        [str(relu), here / "broken.onnx"],
        backends=["onnxruntime"], target="cpu", iterations=2, warmup=0, output=here / "out",
    )  # fmt: skip
    assert isinstance(sessions, list)
    good, bad = sessions
    assert good.results[0].status == "ok"
    assert bad.results == ()
    assert bad.model.name == "broken.onnx"
    assert bad.failure is not None
    assert "broken.onnx" in bad.failure


def test_analyze_of_a_path_writes_where_it_is_told(here: Path) -> None:
    (here / "net.py").write_text(TORCH_NET)
    session = tvmscope.analyze(here / "net.py", output="out", **QUICK)
    assert session.complete
    assert session.model.name == "net"
    assert json.loads((here / "out" / "session.json").read_text())["model"]["name"] == "net"
    (artifact,) = (here / "out" / "artifacts").iterdir()
    (found,) = tvmscope.load_artifact(artifact)(np.ones((1, 3, 12, 10), np.float32)).values()
    assert found.shape == (1, 5)


@pytest.mark.slow
def test_analyze_of_a_name(here: Path) -> None:
    session = tvmscope.analyze("resnet18", offline=True, **QUICK)
    assert session.model.source == "resnet18"
    assert session.results[0].status == "ok"


# ---- mistakes -----------------------------------------------------------------------------------


def test_a_module_without_example_inputs_is_refused(here: Path) -> None:
    with pytest.raises(UsageError, match=r"needs example inputs: inputs=\(x, \.\.\.\)"):
        tvmscope.compile(Pair(), here / "a")


def test_example_inputs_that_do_not_fit_are_refused(here: Path) -> None:
    with pytest.raises(UsageError, match=r"do not fit Pair\.forward"):
        tvmscope.compile(Pair(), here / "a", inputs=(torch.randn(3, 6),), target="cpu")
    with pytest.raises(ImportModelError, match=r"fails in PyTorch on x \(3, 5\)"):
        tvmscope.compile(
            Pair(), here / "a", inputs=(torch.randn(3, 5), torch.arange(2)), target="cpu"
        )
    assert not (here / "a").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"durations_s": 2}, "unknown option 'durations_s'"),
        ({"precision": "int3"}, "unknown precision 'int3'"),
        ({"backends": "tvmscoop"}, "no backend named tvmscoop"),
        ({"target": "gpu9000"}, "unknown target 'gpu9000'"),
        ({"threads": 0}, "give at least 1"),
        ({"pipeline": "nope"}, "pipeline 'nope'"),
        ({"exec_mode": "fast"}, "exec_mode 'fast'"),
        ({"mode": "speed"}, "mode 'speed'"),
        ({"cache": "lukewarm"}, "cache 'lukewarm'"),
        ({"iterations": 0}, "iterations"),
        ({"duration_s": -1}, "duration_s"),
    ],
)
def test_wrong_options_are_refused_by_name(
    options: dict[str, object], words: str, here: Path
) -> None:
    relu = save_onnx(here / "relu.onnx", helper.make_node("Relu", ["x"], ["y"]))
    with pytest.raises(UsageError, match=words):
        tvmscope.analyze(str(relu), **QUICK | options)
    assert not (here / "results").exists()


def test_a_pass_that_does_not_exist_is_refused(here: Path) -> None:
    relu = save_onnx(here / "relu.onnx", helper.make_node("Relu", ["x"], ["y"]))
    with pytest.raises(UsageError, match="no pass named nope"):
        tvmscope.analyze(str(relu), **QUICK, disabled_passes=("nope",))


def test_an_unknown_model_is_refused_with_a_hint(here: Path) -> None:
    with pytest.raises(UsageError, match="did you mean resnet50"):
        tvmscope.bench("resnet5", **QUICK)
    with pytest.raises(UsageError, match=r"there is no file 'gone\.onnx'"):
        tvmscope.compile("gone.onnx", here / "a")


def test_something_that_is_no_model_is_refused(here: Path) -> None:
    with pytest.raises(UsageError, match=r"nn\.Module"):
        tvmscope.compile(3, here / "a", inputs=(torch.zeros(1),))


def test_an_artifact_that_is_not_there_is_refused(here: Path) -> None:
    with pytest.raises(UsageError, match="not an artifact"):
        tvmscope.load_artifact(here)
