"""Additions and multiplications with constants are joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.fold_affine import fold_affine

    return fold_affine()


PASS = Pass(
    name="fold-affine",
    phase="graph",
    words=marked("Joins additions and multiplications with constants into one of each."),
    make=make,
    switches=(Switch(name="fold-affine"),),
)
