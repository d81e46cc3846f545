"""Kernels of inputs run first and those of outputs last, so that all others are one CUDA graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.core.options import CompileOptions
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(_: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cuda.one_graph import one_graph

    return one_graph()


def _records(options: CompileOptions) -> bool:
    return options.graph


PASS = Pass(
    name="one-graph",
    phase="lower",
    words=marked(
        "Launches kernels of inputs first and of outputs last: the rest is one CUDA graph."
    ),
    make=make,
    ours=("cuda",),
    when=_records,
    tracks="order",
    switches=(Switch(name="one-graph", needs=("cuda-graph",)),),
)
