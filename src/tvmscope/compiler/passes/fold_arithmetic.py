"""Constant arithmetic is computed once, with numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.fold_numpy import fold_numpy

    return fold_numpy()


PASS = Pass(
    name="fold-arithmetic",
    phase="graph",
    words=marked("Computes constant arithmetic once, with numpy."),
    make=make,
    switches=(Switch(name="fold-constants"),),
)
