"""Convolutions of signals as generated CUDA kernels for images that are one pixel high."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
from tvm import relax

from support import placed_units
from support.graph_passes import module
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import FLOAT16, FLOAT32, Precision
from tvmscope.cuda.units import Conv2d, Pool, Unit

pytest.importorskip("triton", reason="CUDA kernels are generated where Triton is installed")

Tensor = torch.Tensor
PRECISIONS = pytest.mark.parametrize("precision", [FLOAT32, FLOAT16], ids=str)
GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR)


def convolutions(units: list[Unit]) -> list[Conv2d]:
    return [unit for unit in units if isinstance(unit, Conv2d)]


@PRECISIONS
@pytest.mark.parametrize(
    "layer",
    [
        lambda: torch.nn.Conv1d(12, 24, 3, padding=1),
        lambda: torch.nn.Conv1d(12, 21, 4, stride=3, padding=2, dilation=2),
        lambda: torch.nn.Conv1d(12, 24, 5, groups=4),
        lambda: torch.nn.Conv1d(12, 12, 9, padding=4, groups=12),
        lambda: torch.nn.Conv1d(3, 16, 7, stride=2),
    ],
    ids=["plain", "strided", "groups", "depthwise", "few channels"],
)
def test_a_signal_with_what_follows(
    layer: Callable[[], torch.nn.Conv1d], precision: Precision
) -> None:
    torch.manual_seed(0)
    conv = layer()
    block = torch.nn.Sequential(conv, torch.nn.GELU())
    units, others = placed_units.of_torch(block, precision, random(2, conv.in_channels, 37))
    (unit,) = convolutions(units)
    assert (unit.h, unit.r, unit.padding[0], unit.stride[0]) == (1, 1, 0, 1)
    assert (unit.epilogue.bias, unit.epilogue.activation) == (True, "gelu")
    assert not [name for name in others if "conv" in name or "gelu" in name]


class Residual(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv1d(16, 24, 1)
        self.first = torch.nn.Conv1d(24, 24, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm1d(24)
        self.second = torch.nn.Conv1d(24, 24, 5, padding=4, dilation=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = nnf.relu(self.norm(self.first(x)))
        y = nnf.max_pool1d(nnf.relu(x + self.second(y)), 3, 2)
        return y.mean(2)


@PRECISIONS
def test_a_network_of_signals_is_moved_only_at_its_edges(precision: Precision) -> None:
    """The batch norm is a part of the convolution before it; a residual sum is its kernel's."""
    torch.manual_seed(0)
    block = Residual()
    block.norm.running_mean = random(24) / 4
    block.norm.running_var = random(24).abs() + 0.5
    units, others = placed_units.of_torch(block, precision, random(3, 16, 21))
    assert sorted(u.epilogue.activation for u in convolutions(units)) == ["none", "relu", "relu"]
    assert [u.epilogue.residual for u in convolutions(units)].count("before") == 1
    assert {u.form for u in units if isinstance(u, Pool)} == {"max", "mean"}
    assert not [n for n in others if "add" in n or "relu" in n or "pool" in n]
    assert sum("transpose" in name for name in others) == 1


def test_rows_of_a_transformer_are_read_in_place() -> None:
    """Permutations around signals whose channels come last cancel those of the images."""

    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = torch.nn.Conv1d(16, 16, 3, padding=1), torch.nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(self.linear(x).transpose(1, 2)).transpose(1, 2)
            found: Tensor = self.linear(y)
            return found

    units, others = placed_units.of_torch(Rows(), FLOAT32, random(2, 11, 16))
    assert sorted({u.kind for u in units}) == ["conv2d", "matmul"]
    assert not [name for name in others if "transpose" in name]


class Layers(torch.nn.Module):
    """Convolutions with what stands between them in networks of signals."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.first = form, torch.nn.Conv1d(16, 32, 3, dilation=2)
        self.second = torch.nn.Conv1d(32 if form in ("causal", "cut", "joined") else 16, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        before = {"causal": (4, 0), "cut": (4, 4)}.get(self.form, (2, 2))
        y = self.first(nnf.pad(x, before))
        if self.form == "cut":
            y = y[..., :-4]
        if self.form == "gated":
            y = nnf.glu(y, 1)
        if self.form == "two gates":
            left, right = y.chunk(2, 1)
            y = left.tanh() * right.sigmoid()
        if self.form == "joined":
            y = torch.cat([x, y[:, :16]], 1)
        found: Tensor = self.second(y)
        return found


@PRECISIONS
@pytest.mark.parametrize("form", ["causal", "cut", "gated", "two gates", "joined"])
def test_what_is_between_signals_stays_in_their_layout(form: str, precision: Precision) -> None:
    torch.manual_seed(0)
    units, others = placed_units.of_torch(Layers(form), precision, random(2, 16, 21))
    assert len(convolutions(units)) == 2
    assert not [name for name in others if "pad" in name]
    moved = sum("transpose" in name for name in others)
    assert moved <= 2 + (form == "joined")  # the input, once more where it is joined; the result


def test_pools_of_onnx_follow_their_signals() -> None:
    weight, x = random(24, 8, 3), random(2, 8, 39)

    def build(v: relax.Expr) -> relax.Expr:
        made = relax.op.nn.conv1d(v, relax.const(weight.numpy()))
        made = relax.op.nn.max_pool1d(made, pool_size=3, strides=2, padding=(1, 1))
        return relax.op.nn.avg_pool1d(made, pool_size=2, strides=2)

    made = placed_units.lowered(module(build, x), CompileOptions()).module
    (found,) = placed_units.run(made, x.numpy())
    wanted = nnf.avg_pool1d(nnf.max_pool1d(nnf.conv1d(x, weight), 3, 2, 1), 2)
    assert np.abs(found - wanted.numpy()).max() < 1e-5
    kinds = sorted(unit.kind for unit in placed_units.placed(made))
    assert kinds == ["conv2d", "pool", "pool"]


def test_signals_with_channels_last_are_left() -> None:
    weight, x = random(8, 3, 8), random(2, 19, 8)

    def build(v: relax.Expr) -> relax.Expr:
        kernel = relax.const(weight.numpy())
        return relax.op.nn.conv1d(v, kernel, data_layout="NWC", kernel_layout="OWI")

    made = placed_units.lowered(module(build, x), CompileOptions()).module
    assert not placed_units.placed(made)
