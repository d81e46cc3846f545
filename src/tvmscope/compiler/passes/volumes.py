"""Convolutions of volumes become those of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.volumes import volumes

    return volumes()


PASS = Pass(
    name="volumes",
    phase="graph",
    words=marked(
        "Computes convolutions of volumes as those of their slices: a window of several reads them "
        "as channels."
    ),
    make=make,
    ours=("cpu", "cuda"),
    switches=(Switch(name="volumes"),),
)
