"""A model in half precision keeps its values narrow between kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context, in_reduced_precision
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    import tvm

    from tvmscope.compiler.rewrites.cuda.narrow import narrow
    from tvmscope.compiler.rewrites.fold_numpy import fold_numpy

    return tvm.transform.Sequential([narrow(context.options.precision.dtype), fold_numpy()])


PASS = Pass(
    name="narrow",
    phase="layout",
    words=marked(
        "Keeps values in half precision between kernels, which sum in float32 all the same."
    ),
    make=make,
    ours=("cuda",),
    when=in_reduced_precision,
    switches=(Switch(name="narrow"),),
)
