"""Heavy operators with what follows them go to generated CUDA kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    import tvm

    from tvmscope.compiler.rewrites.cuda.place_units import place_units
    from tvmscope.compiler.units.choose import Chooser, unavailable

    if reason := unavailable(context.target):
        context.remarks.append(reason)
        return tvm.transform.Sequential([])
    tf32 = context.options.precision.math == "tf32"
    return place_units(Chooser(context.target, context.options.choices), tf32=tf32)


PASS = Pass(
    name="place-units",
    phase="layout",
    words=marked("Computes heavy operators together with what follows them in generated kernels."),
    make=make,
    ours=("cuda",),
    switches=(Switch(name="generated-kernels"),),
)
