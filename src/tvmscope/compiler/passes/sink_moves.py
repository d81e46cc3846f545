"""Moves of rows go after products, where the next operator reads them as views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm


def make(context: Context) -> tvm.transform.Pass:
    from tvmscope.compiler.rewrites.cuda.sink_moves import sink_moves

    return sink_moves()


PASS = Pass(
    name="sink-moves",
    phase="layout",
    words=marked("Moves rows behind operators that treat each row alone, so that moves cancel."),
    make=make,
    ours=("cuda",),
    switches=(Switch(name="sink-moves"),),
)
