"""Generated kernels write into concatenations and read from slices, which then cost nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cuda.share_buffers import share_buffers

    return share_buffers()


PASS = Pass(
    name="share-buffers",
    phase="layout",
    words=marked(
        "Lets kernels write directly into concatenations, and read slices without copying them."
    ),
    make=make,
    ours=("cuda",),
    switches=(Switch(name="share-buffers"),),
)
