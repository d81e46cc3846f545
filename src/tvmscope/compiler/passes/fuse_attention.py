"""Product, softmax and product become one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass, Shows
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.fuse_attention import fuse_attention

    return fuse_attention(context.target)


PASS = Pass(
    name="fuse-attention",
    phase="layout",
    words=marked("Turns matrix product, softmax and matrix product into one attention kernel."),
    make=make,
    ours=("cpu",),
    switches=(Switch(name="attention"),),
    shows=Shows(kernels="batch_matmul|softmax"),
)
