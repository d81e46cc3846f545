"""The main function calls the function of a part for each part of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cpu.split_batch import join_batch

    return join_batch()


PASS = Pass(
    name="join-batch",
    phase="fuse",
    words=marked("Calls the function of one part for each part of the batch."),
    make=make,
    ours=("cpu",),
)
