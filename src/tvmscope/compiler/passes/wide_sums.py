"""Half-precision products and averages are summed in single precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.wide_sums import wide_sums

    return wide_sums(context.target)


PASS = Pass(
    name="wide-sums",
    phase="precision",
    words=marked("Sums half-precision products and averages in single precision."),
    make=make,
)
