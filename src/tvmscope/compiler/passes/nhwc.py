"""Convolution networks run in NHWC on GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cuda.nhwc import nhwc

    return nhwc()


PASS = Pass(
    name="nhwc",
    phase="layout",
    words=marked("Runs convolution networks with channels last from end to end."),
    make=make,
    ours=("cuda",),
    switches=(Switch(name="nhwc"),),
)
