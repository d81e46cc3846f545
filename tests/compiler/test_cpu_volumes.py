"""Volumes and signals on a CPU: convolutions and pools of images compute them, as PyTorch does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import tvm
from torch import nn

from support.paired_graph import rules as rules_of
from tvmscope.compiler import in_memory, pipeline, targets
from tvmscope.compiler.frontends.torch import importer
from tvmscope.core.options import CompileOptions

Make = Callable[[], nn.Module]
VOLUME, SIGNAL = (2, 6, 7, 9, 8), (3, 6, 37)
CASES: dict[str, tuple[Make, tuple[int, ...]]] = {
    "convolution": (lambda: nn.Conv3d(6, 20, 3, padding=1), VOLUME),
    "uneven": (lambda: nn.Conv3d(6, 5, (2, 3, 4), stride=(2, 1, 3), padding=(1, 0, 2)), VOLUME),
    "dilated": (lambda: nn.Conv3d(6, 16, 3, padding=2, dilation=2), VOLUME),
    "groups": (lambda: nn.Conv3d(6, 12, (3, 1, 1), groups=3), VOLUME),
    "depthwise": (lambda: nn.Conv3d(6, 6, 3, stride=2, padding=1, groups=6), VOLUME),
    "depthwise with a multiplier": (lambda: nn.Conv3d(6, 12, 3, groups=6), VOLUME),
    "transposed": (lambda: nn.ConvTranspose3d(6, 10, 3, stride=2, padding=1), VOLUME),
    "normed": (lambda: nn.Sequential(nn.Conv3d(6, 16, 3), nn.BatchNorm3d(16), nn.ReLU()), VOLUME),
    "grouped norm": (
        lambda: nn.Sequential(nn.Conv3d(6, 16, 3), nn.GroupNorm(4, 16), nn.MaxPool3d(2)), VOLUME
    ),
    "signal": (lambda: nn.Conv1d(6, 20, 5, padding=2), SIGNAL),
    "strided signal": (lambda: nn.Conv1d(6, 7, 4, stride=3, padding=1, dilation=2), SIGNAL),
    "depthwise signal": (lambda: nn.Conv1d(6, 6, 7, padding=3, groups=6), SIGNAL),
    "separable signal": (
        lambda: nn.Sequential(nn.Conv1d(6, 16, 1), nn.Conv1d(16, 16, 3, padding=1, groups=16),
                              nn.BatchNorm1d(16), nn.SiLU(), nn.Conv1d(16, 8, 1)), SIGNAL
    ),
    "transposed signal": (lambda: nn.ConvTranspose1d(6, 9, 5, stride=2, padding=1), SIGNAL),
}  # fmt: skip
POOLS: dict[str, Make] = {
    "max": lambda: nn.MaxPool3d(2),
    "max, padded": lambda: nn.MaxPool3d((3, 2, 3), stride=(1, 2, 2), padding=(1, 1, 0)),
    "max, dilated": lambda: nn.MaxPool3d(2, stride=1, dilation=2),
    "max, rounded up": lambda: nn.MaxPool3d((2, 3, 3), stride=(2, 2, 3), ceil_mode=True),
    "mean": lambda: nn.AvgPool3d(3, stride=2, padding=1),
    "mean of what is there": lambda: nn.AvgPool3d(3, 2, 1, count_include_pad=False),
    "mean, rounded up": lambda: nn.AvgPool3d((2, 3, 3), 2, ceil_mode=True),
    "of slices alone": lambda: nn.AvgPool3d((1, 2, 3), stride=(1, 2, 2)),
    "over slices alone": lambda: nn.MaxPool3d((3, 1, 1), stride=(2, 1, 1), padding=(1, 0, 0)),
}


def rules(block: nn.Module, x: torch.Tensor) -> set[str]:
    """The schedule rules of a module's kernels; its results are compared with PyTorch's."""
    for each in block.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(each.running_mean)
    with torch.no_grad():
        wanted = block.eval()(x).numpy()
        program = torch.export.export(block, (x,))
    imported = importer.translate(importer.decomposed(program), "m")
    (found,) = in_memory.compile_here(imported, CompileOptions())([x.numpy()])
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    target = targets.resolve("cpu")
    made = tvm.target.Target(targets.to_tvm(target))
    lowered = pipeline.run(imported.module, target, made, CompileOptions())
    return {str(rule) for rule in rules_of(lowered.module).values()}


@pytest.mark.parametrize("name", CASES)
def test_convolutions_have_the_schedules_of_images(name: str) -> None:
    torch.manual_seed(0)
    make, shape = CASES[name]
    found = rules(make(), torch.randn(*shape))
    alone = name == "depthwise signal"  # what is no image yet takes less as it is
    assert found & {"conv2d", "conv2d-tiles", "winograd", "depthwise"} or alone


@pytest.mark.parametrize("name", POOLS)
def test_pools_are_two_pools(name: str) -> None:
    torch.manual_seed(0)
    rules(POOLS[name](), torch.randn(2, 3, 7, 11, 9))


@pytest.mark.parametrize("dimensions", [1, 3])
def test_a_computed_weight_is_right(dimensions: int) -> None:
    torch.manual_seed(0)
    convolve = (torch.conv1d, torch.conv3d)[dimensions == 3]

    class Block(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            window = (7, 5, *(3,) * dimensions)
            weight = x.sigmoid().reshape(-1)[: 7 * 5 * 3**dimensions].reshape(window)
            return convolve(x, weight, padding=1)

    rules(Block(), torch.randn(3, 5, *(7, 9, 11)[-dimensions:]).repeat(4, *(1,) * (dimensions + 1)))
