"""Scalar operands become constants, which the change of precision can cast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context, in_reduced_precision
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.scalar_operands import scalar_operands

    return scalar_operands()


PASS = Pass(
    name="scalar-operands",
    phase="precision",
    words=marked("Turns scalar operands into constants, so that they can be cast."),
    make=make,
    when=in_reduced_precision,
)
