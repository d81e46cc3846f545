"""`compile --dynamic`: one artifact for all sizes of a dimension, each as PyTorch computes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tvmscope
from tvmscope.errors import UsageError
from tvmscope.runtime import dynamic

pytestmark = pytest.mark.slow


class Pictures(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).mean((2, 3))


class Words(torch.nn.Module):
    """Attention without a mask: neither parts nor padding are right."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.transpose(1, 2), -1) @ x


def test_all_batches_run_and_share_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Pictures().eval()
    example = torch.randn(2, 3, 12, 12)
    tvmscope.compile(
        module, tmp_path / "a", inputs=(example,), target="cpu", dynamic="x:0=1..8@1,4"
    )
    plan = dynamic.read(tmp_path / "a")
    assert plan.rest == "split"
    assert plan.weights_share < 2  # of three sizes; some kernels want layouts of their own
    assert [cost.size for cost in plan.costs] == [1, 4, 8, 6]
    for cost in plan.costs:
        assert cost.ratio is not None
        assert cost.ci95 is not None
        assert cost.ci95[0] <= cost.ratio <= cost.ci95[1]
    model = tvmscope.load_artifact(tmp_path / "a")
    for size in (1, 3, 8):
        x = torch.randn(size, 3, 12, 12)
        (found,) = model(x.numpy()).values()
        np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_lengths_that_padding_would_change_are_refused(tmp_path: Path) -> None:
    tvmscope.compile(
        Words().eval(),
        tmp_path / "a",
        inputs=(torch.randn(1, 8, 4),),
        target="cpu",
        dynamic="x:1=4..8@4",
    )
    assert dynamic.read(tmp_path / "a").rest == "none"
    model = tvmscope.load_artifact(tmp_path / "a")
    with pytest.raises(UsageError, match="size 5 has no kernels"):
        model(np.zeros((1, 5, 4), np.float32))
