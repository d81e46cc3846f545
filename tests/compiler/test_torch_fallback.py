"""Operators of torch without a kernel run in PyTorch: in which parts, and without copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tvmscope.compiler import build, in_memory
from tvmscope.compiler.frontends.torch.importer import decomposed, translate
from tvmscope.core.artifact import FALLBACK, Artifact
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions, LoadOptions
from tvmscope.core.target import Target
from tvmscope.errors import ImportModelError
from tvmscope.models.prepare import prepare
from tvmscope.runtime import load_model
from tvmscope.runtime.artifact import read
from tvmscope.runtime.loaded_artifact import load_callable

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.shift = nn.Parameter(torch.arange(6.0) / 3)

    def forward(self, x):
        y = torch.relu(self.first(x))
        inner = torch.special.i0(y + self.shift)
        inner = torch.lgamma(inner)
        return torch.special.i0(torch.tanh(inner + y)), y.t()

def get_inputs():
    return [torch.randn(4, 6)]
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, host: Target) -> Artifact:
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "mixed.py").write_text(SOURCE)
    ready = folder / "prepared"
    described = prepare(str(folder / "mixed.py"), str(ready), LoadOptions(need_onnx=False))
    return build.build(
        Prepared(ready, described), folder / "artifact", host, host, CompileOptions()
    )


def test_an_artifact_gives_what_pytorch_gives(artifact: Artifact) -> None:
    ready = artifact.path.parent / "prepared"
    with np.load(ready / "inputs.npz") as inputs, np.load(ready / "reference.npz") as wanted:
        loaded = load_callable(artifact.path)
        (name,) = inputs.files
        for _ in range(3):  # memory of one run must not end up in the next one
            found = loaded(inputs[name])
            for output, value in found.items():
                np.testing.assert_allclose(value, wanted[output], rtol=1e-4, atol=1e-5)


def test_an_artifact_says_which_operators_run_in_pytorch(artifact: Artifact) -> None:
    parts = read(artifact.path).fallbacks
    assert [part.operators for part in parts] == [("special_i0", "lgamma"), ("special_i0_1",)]
    assert {part.framework for part in parts} == {"torch"}
    assert all((artifact.path / part.file).suffix == ".pt2" for part in parts)
    told = [str(text) for text in artifact.warnings if "PyTorch" in str(text)]
    assert len(told) == 1
    assert "special_i0, lgamma, special_i0_1 run in PyTorch, in parts: 2" in told[0]
    called = [call for call in artifact.kernels if call.kernel.startswith(FALLBACK)]
    assert [call.source_ops for call in called] == [part.operators for part in parts]


def test_the_small_loader_names_the_framework(artifact: Artifact) -> None:
    with pytest.raises(load_model.LoadError, match=r"lgamma.* run in PyTorch"):
        load_model.Model(artifact.path)


def program(function: object, *shapes: tuple[int, ...]) -> torch.export.ExportedProgram:
    class Whole(torch.nn.Module):
        def forward(self, *tensors: torch.Tensor) -> object:
            return function(*tensors)  # type: ignore[operator]

    return decomposed(torch.export.export(Whole(), tuple(map(torch.ones, shapes)), strict=False))


def test_without_fallback_the_operators_are_refused_by_name() -> None:
    with pytest.raises(ImportModelError, match=r"i0.default x1 .*, lgamma.default x1"):
        translate(program(lambda x: torch.lgamma(torch.special.i0(x)), (3,)), "m")


def test_parallel_operators_of_one_level_are_one_part() -> None:
    parallel = program(lambda x: torch.lgamma(x) + x.relu() + torch.special.i0(x), (3,))
    ((part, _),) = translate(parallel, "m", fallback=True).fallbacks
    assert part.operators == ("lgamma", "i0")


def test_what_reads_a_size_of_run_time_goes_along() -> None:
    found = program(lambda x: torch.nonzero(x).float().sum(), (3, 4))
    ((part, _),) = translate(found, "m", fallback=True).fallbacks
    assert part.operators[0] == "nonzero"
    assert part.operators[-1] == "sum_1"
    assert part.fixed


def test_an_operator_with_a_result_of_another_type_is_not_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tvmscope.compiler.frontends.torch.walk import Converters

    monkeypatch.setattr(Converters, "_reduce", lambda self, node: self.retrieve_args(node)[0])
    wrong = program(lambda x: x.amax(1), (3, 4))
    ((part, _),) = translate(wrong, "m", fallback=True).fallbacks
    assert part.operators == ("amax",)
    assert "imported as float32[3, 4], it is float32[3]" in str(part.reason)


class Selecting(torch.nn.Module):
    """What a mask selects is used again after compiled operators, one of which reads it."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = x[x > 0]
        outside = torch.relu(torch.lgamma(x) + 1).sum()
        through = (x * found.max()).sum()
        return found * outside, found + through


def test_what_exchanges_sizes_known_at_run_time_is_one_part() -> None:
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    program = decomposed(torch.export.export(Selecting(), (x,)))
    imported = translate(program, "selecting", fallback=True)
    assert len(imported.fallbacks) == 2  # lgamma comes before what is compiled, the rest after
    run = in_memory.compile_here(imported, CompileOptions())
    for given in (x, -x):
        for found, wanted in zip(run([given.numpy()]), Selecting()(given), strict=True):
            np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4)
