"""Outputs are verified behind runs on other inputs: a launch that does nothing is found."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tvmscope.backends import torch_module
from tvmscope.backends import tvm as tvm_backend
from tvmscope.backends.api import LoadRequest, decoy
from tvmscope.compiler import build
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT32
from tvmscope.core.target import Target


def test_a_decoy_is_another_input_of_the_same_kind() -> None:
    for value in (
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(4),
        np.array([True, False]),
        np.array(3.0, np.float16),
    ):
        other = decoy(value)
        assert (other.shape, other.dtype) == (value.shape, value.dtype)
        assert not np.array_equal(other, value)
    np.testing.assert_array_equal(decoy(np.array([1, 5, 2])), [2, 5, 1])


@pytest.fixture
def runner(conv_net: Prepared, host: Target, tmp_path: Path) -> Any:
    """The CUDA row's runner on an artifact for this CPU."""
    build.build(conv_net, tmp_path / "a", host, host, CompileOptions())
    request = LoadRequest(
        folder=str(conv_net.folder),
        device="cuda",
        precision=FLOAT32,
        threads=1,
        artifact=str(tmp_path / "a"),
    )
    return tvm_backend._CudaRunner(request)


def test_a_run_that_computes_nothing_gives_a_wrong_result(
    runner: Any, conv_net: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    with np.load(conv_net.reference_path) as data:
        expected = {name: data[name] for name in data.files}
    for name, value in runner.outputs().items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)
    run, results = runner.loaded.run, []

    def stuck(placed: list[Any]) -> Any:
        """Every run after the first leaves what was there."""
        results.append(results[0] if results else run(placed))
        return results[-1]

    monkeypatch.setattr(runner.loaded, "run", stuck)
    found = runner.outputs()
    assert any(not np.allclose(found[n], v, rtol=1e-2, atol=1e-2) for n, v in expected.items())


def test_pytorch_rows_too_and_their_inputs_come_back() -> None:
    runner = torch_module.TorchRunner.__new__(torch_module.TorchRunner)
    x, ids = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 2])
    runner.torch, runner.device, runner._inputs = torch, "cuda", [x, ids]
    runner.loaded = SimpleNamespace(flatten=lambda result: {"y": result})  # type: ignore[assignment]
    seen = []

    def call() -> torch.Tensor:
        seen.append((x.tolist(), ids.tolist()))
        return x * 2

    runner._call = call
    runner.synchronize = lambda: None  # type: ignore[method-assign]
    np.testing.assert_array_equal(runner.outputs()["y"], [2.0, 4.0, 6.0])
    assert seen == [([-3.0, -2.0, -1.0], [2, 1, 0]), ([1.0, 2.0, 3.0], [0, 1, 2])]
