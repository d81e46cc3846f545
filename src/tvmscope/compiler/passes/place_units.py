"""Heavy operators and their epilogues are computed by generated CUDA kernels."""

from __future__ import annotations

from dataclasses import replace
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
    said = context.options.overrides
    target = context.target
    if portable := said.get("portable"):  # with the limits of that architecture, not this device's
        target = replace(target, arch=portable, attrs={})
    chooser = Chooser(
        target,
        context.options.choices,
        recorded=said.get("records", True),
        dependent=said.get("dependent_launch", True),
        library=said.get("library", True) and context.options.library,
    )
    tf32 = context.options.precision.math == "tf32"
    pools = said.get("pools")
    tensor_cores = said.get("tensor_cores", True)
    return place_units(
        chooser,
        prefers=chooser.prefers if pools is None else lambda *_: bool(pools),
        convolve="tf32" if tf32 and tensor_cores else None,
        multiply=None if tensor_cores else "ieee",
        fused=said.get("epilogues", True),
    )


PASS = Pass(
    name="place-units",
    phase="layout",
    words=marked("Computes heavy operators together with what follows them in generated kernels."),
    make=make,
    ours=("cuda",),
    switches=(
        Switch(name="generated-kernels"),
        Switch(name="fusion", overrides={"epilogues": False}),
        Switch(name="pools-inside", overrides={"pools": False}),
        Switch(name="tensor-cores", overrides={"tensor_cores": False}),
        Switch(name="dependent-launch", overrides={"dependent_launch": False}),
        Switch(name="library", overrides={"library": False}),
        Switch(name="records", overrides={"records": False}),
        Switch(name="target-features", overrides={"portable": "sm_80"}),
    ),
)
