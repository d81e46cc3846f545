"""Sums of convolutions of one input: joined where one of them has a place for all taps of the
others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax

from support.graph_passes import tidy
from tvmscope.compiler import in_memory, pipeline, targets
from tvmscope.compiler.frontends.torch import importer
from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.rewrites.join_branches import join_branches
from tvmscope.core.options import CompileOptions

Tensor = torch.Tensor
C = 6


def conv(size: int | tuple[int, int] = 3, **more: object) -> nn.Conv2d:
    given = {"padding": 1 if size == 3 else 0, "bias": True, **more}
    return nn.Conv2d(C, C, size, **given)  # type: ignore[arg-type]  # drawn here


def norm() -> nn.BatchNorm2d:
    made = nn.BatchNorm2d(C)
    made.running_mean, made.running_var = torch.randn(C), torch.rand(C) + 0.5
    made.weight.data, made.bias.data = torch.rand(C) + 0.5, torch.randn(C)
    return made


class Sum(nn.Module):
    """The sum of some branches of one input."""

    def __init__(self, *branches: nn.Module, first: nn.Module | None = None) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.first = first

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.first is None else self.first(x)
        total = self.branches[0](x)
        for branch in self.branches[1:]:
            total = total + branch(x)
        return total.relu()


CASES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "RepVGG": (lambda: Sum(nn.Sequential(conv(), norm()), nn.Sequential(conv(1), norm()), norm()),
               1),
    "MobileOne": (lambda: Sum(norm(), *(nn.Sequential(conv(groups=C), norm()) for _ in range(3)),
                              conv(1, groups=C)), 1),
    "RepViT": (lambda: nn.Sequential(Sum(conv(groups=C), conv(1, groups=C), nn.Identity()), norm()),
               1),
    "groups in a dense one": (lambda: Sum(conv(groups=3), conv()), 1),
    "groups in wider groups": (lambda: Sum(conv(groups=6), conv(groups=2), conv(1, groups=3)), 2),
    "strides": (lambda: Sum(conv(stride=2), conv(1, stride=2)), 1),
    "dilated": (lambda: Sum(conv(dilation=2, padding=2), conv(1), conv((3, 1), padding=(2, 0),
                                                                     dilation=(2, 1))), 1),
    "rows and columns": (lambda: Sum(conv((1, 3), padding=(0, 1)), conv(),
                                     conv((3, 1), padding=(1, 0))), 1),
    "a padded one": (lambda: Sum(conv(), conv(5, padding=2), conv(padding=1)), 1),
    "twice the same": (lambda: Sum(conv(1), conv(1)), 1),
    # near-misses
    "other strides": (lambda: Sum(conv(4, stride=2, padding=1), conv(2, stride=2)), 1),
    "taps between taps": (lambda: Sum(conv(dilation=2, padding=2), conv()), 2),
    "a dense one in groups": (lambda: Sum(conv(groups=C), conv(1)), 2),
    "a residual of a dense one": (lambda: Sum(conv(), nn.Identity()), 1),
    "another input": (lambda: Sum(nn.Sequential(nn.ReLU(), conv()), conv(1)), 2),
    "a row and a column": (lambda: Sum(conv((1, 3), padding=(0, 1)),
                                       conv((3, 1), padding=(1, 0))), 2),
    "moved apart": (lambda: Sum(conv(2, padding=1), nn.Sequential(nn.ConstantPad2d(1, 0.0),
                                                                conv(2))), 2),
}  # fmt: skip


def convolutions(module: tvm.IRModule) -> int:
    found = []

    def visit(node: relax.Expr) -> None:
        if isinstance(node, relax.Call) and node.op == tvm.ir.Op.get("relax.nn.conv2d"):
            found.append(node)

    relax.analysis.post_order_visit(module["main"], visit)
    return len(found)


@pytest.mark.parametrize("name", CASES)
def test_the_sum_is_the_same_with_fewer_convolutions(name: str) -> None:
    torch.manual_seed(0)
    make, expected = CASES[name]
    block, x = make().eval(), torch.randn(2, C, 9, 11)
    with torch.no_grad():
        wanted = block(x).numpy()
        program = torch.export.export(block, (x,))
    imported = importer.translate(importer.decomposed(program), name)
    run = in_memory.compile_here(imported, CompileOptions())
    (found,) = run([x.numpy()])
    assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max()
    assert convolutions(_joined(imported.module)) == expected


def _joined(module: tvm.IRModule) -> tvm.IRModule:
    """A module after the pass, in its place among the others."""
    target = targets.resolve("cpu")
    made = tvm.target.Target(targets.to_tvm(target))
    steps = pipeline.passes(Context(target, CompileOptions()), made)
    for step in steps[: [step.name for step in steps].index("join-branches") + 1]:
        module = step.run(module)
    return module


def test_large_sums_are_left_in_half_precision() -> None:
    first, second = conv(), conv(1)
    for each in (first, second):
        each.weight.data[:] = 3000.0
    block = Sum(first, second).eval()
    program = torch.export.export(block, (torch.randn(1, C, 5, 5),))
    module = importer.translate(importer.decomposed(program), "m").module
    assert convolutions(tidy(join_branches(half=True)(module))) == 2
    assert convolutions(tidy(join_branches(half=False)(module))) == 1
