"""Values between kernels stay in half precision, also behind limits that half precision lacks.

No GPU is needed: the passes run for one, and each unit is computed by its numpy reference.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from support import placed_units
from tvmscope.core.precision import FLOAT16
from tvmscope.cuda.units import Conv2d, Matmul

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

LARGE = 3e38
"""A finite number of float32 that half precision lacks, as older ONNX files have for no limit."""


class Net(nn.Module):
    """A convolution whose mean over the pixels, after a limit, goes through a product."""

    def __init__(self, limited: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.head, self.limited = nn.Conv2d(3, 20, 3), nn.Linear(20, 5), limited

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.limited(torch.relu(self.conv(x))).mean((2, 3)))
        return found


def inputs() -> Tensor:
    return torch.randn(2, 3, 11, 9, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "limited",
    [
        lambda y: y.clamp(max=0.5),
        lambda y: y.clamp(min=0.5),
        lambda y: torch.maximum(y, torch.tensor(-LARGE)).minimum(torch.tensor(0.5)),
        lambda y: torch.minimum(y, torch.tensor(LARGE)).maximum(torch.tensor(0.5)),
    ],
    ids=["max", "min", "finite-max", "finite-min"],
)
def test_a_clip_with_one_limit_is_no_reason_for_casts(limited: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    units, others = placed_units.of_torch(Net(limited), FLOAT16, inputs())
    assert [type(unit) for unit in units] == [Conv2d, Matmul]
    assert {unit.dtype for unit in units} == {"float16"}
    assert sorted(others) == ["fused_cast_transpose_pad", "reshape"]


def test_a_limit_that_keeps_infinities_away_still_does() -> None:
    """In front of a softmax: of a row of -inf alone it would make NaN."""

    class Guarded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = x @ torch.full((16, 8), -10.0)
            return torch.softmax(torch.maximum(scores, torch.tensor(-LARGE)), -1)

    x = torch.ones(4, 16)
    x[0] = 6e4  # its product exceeds half precision
    placed_units.of_torch(Guarded(), FLOAT16, x)


def test_a_limit_that_would_become_infinite_is_kept_in_float32() -> None:
    torch.manual_seed(0)
    net = Net(lambda y: torch.maximum(y, torch.tensor(1e5)) / 1e5)
    _, others = placed_units.of_torch(net, FLOAT16, inputs())
    assert any("maximum" in name for name in others)
