"""Group, instance and layer norms of several axes become layer norms of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.norm_rows import norm_rows

    return norm_rows()


PASS = Pass(
    name="norm-rows",
    phase="graph",
    words=marked("Normalises groups and instances as rows, with a variance around the mean."),
    make=make,
    ours=("cpu",),
)
