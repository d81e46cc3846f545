"""Chains of additions and multiplications with constants: joined where nobody else reads a part."""

from __future__ import annotations

import pytest
import torch
from tvm import relax

from support.graph_passes import Build, check, const
from tvmscope.compiler.rewrites.fold_affine import fold_affine

op = relax.op


def _twice_read(x: relax.Expr) -> relax.Expr:
    emit = relax.BlockBuilder.current().emit
    part = emit(op.add(x, const([1.0, 2.0])))
    return op.maximum(part, emit(op.multiply(part, const([3.0, 4.0]))))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            lambda x: op.multiply(op.multiply(x, const([2.0, 4.0])), const(3.0)),
            lambda x: op.multiply(x, const([6.0, 12.0])),
        ),
        (lambda x: op.divide(x, const(4.0)), lambda x: op.multiply(x, const(0.25))),
        (
            lambda x: op.add(const([1.0, 2.0]), op.add(x, const([3.0, 4.0]))),
            lambda x: op.add(x, const([4.0, 6.0])),
        ),
        (_twice_read, _twice_read),
        (lambda x: op.add(x, const([1.0, 2.0])),) * 2,
        (lambda x: op.divide(const([1.0, 2.0]), x),) * 2,
        (lambda x: op.divide(x, const([0.0, 2.0])),) * 2,
    ],
    ids=["factors", "division", "terms", "read-twice", "alone", "divisor", "zero"],
)
def test_joins_what_it_may(before: Build, after: Build) -> None:
    check(fold_affine(), before, after, torch.ones(3, 2))


def test_does_not_grow_constants() -> None:
    def wide(x: relax.Expr) -> relax.Expr:
        return op.multiply(op.add(x, const([[1.0]] * 300)), const([[2.0] * 200]))

    check(fold_affine(), wide, wide, torch.ones(300, 200))
