"""Results of generated kernels stay in half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context, in_reduced_precision
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.passes import narrow

    return narrow.make(context)


PASS = Pass(
    name="narrow-results",
    phase="layout",
    words=marked("Keeps the results of generated kernels in half precision."),
    make=make,
    ours=("cuda",),
    when=in_reduced_precision,
    switches=(Switch(name="narrow"),),
)
