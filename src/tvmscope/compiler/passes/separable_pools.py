"""Pools of volumes become two pools of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.separable_pools import separable_pools

    return separable_pools()


PASS = Pass(
    name="separable-pools",
    phase="graph",
    words=marked("Pools volumes over rows and columns first, then over slices."),
    make=make,
    ours=("cpu",),
    switches=(Switch(name="separable-pools"),),
)
