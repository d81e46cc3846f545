"""Operators that run in a framework stay outside CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.core.options import CompileOptions
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cuda.outside_graph import outside_graph

    return outside_graph()


def _records(options: CompileOptions) -> bool:
    return options.graph


PASS = Pass(
    name="outside-graph",
    phase="memory",
    words=marked("Keeps operators that run in a framework out of CUDA graphs."),
    make=make,
    ours=("cuda",),
    theirs=("cuda",),
    when=_records,
    required=True,
)
