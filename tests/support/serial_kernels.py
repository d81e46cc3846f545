"""Runs a GPU schedule on the CPU: threads one after the other, all memory in one place.

Before lowering, a loop that is bound to threads is a loop like any other, so that a schedule's
tiles, copies, conditions and order of work are checked without a GPU. What it cannot show are races
and tensor intrinsics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx

Array = np.ndarray[Any, Any]


def run(sch: s_tir.Schedule, arguments: Sequence[Array]) -> None:
    """Run a scheduled function on arrays, of which it writes the last."""
    built = tvm.tirx.build(serial(sch), target={"kind": "llvm"})
    tensors = [tvm.runtime.tensor(array) for array in arguments]
    built["main"](*tensors)
    for array, tensor in zip(arguments, tensors, strict=True):
        array[...] = tensor.numpy()


def serial(sch: s_tir.Schedule) -> tvm.IRModule:
    """The same loops without threads, pipelines and kinds of memory."""
    sch = sch.copy()
    func = sch.mod["main"]
    params = {str(p.name) for p in func.params}
    blocks = dict[str, None]()

    def note(block: s_tir.SBlock) -> None:
        if block.writes and str(block.writes[0].source.name) not in params:
            blocks[str(block.name_hint)] = None

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, note))
    for name in blocks:
        if name != "root":
            sch.set_scope(sch.get_sblock(name), 0, "global")
    func = sch.mod["main"]
    body = tvm_ffi.structural_map(func.body, (tirx.For, _plain))
    plain = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    return tvm.IRModule({"main": plain.with_attr("global_symbol", "main")})


def _plain(loop: tirx.For) -> tirx.For:
    var, first, count = loop.loop_var, loop.min, loop.extent
    return tirx.For(var, first, count, tirx.ForKind.SERIAL, loop.body)
