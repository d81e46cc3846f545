"""Refuses kernels for a GPU that no rule has given threads: TVM would run them on the host, which
cannot read the GPU's memory."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from tvmscope.errors import BuildError
from tvmscope.messages import msg


def refuse_threadless(module: tvm.IRModule) -> None:
    """Raise an error that names the kernels whose loops would run on the host."""
    names = [
        var.name_hint
        for var, func in module.functions_items()
        if isinstance(func, tirx.PrimFunc) and _is_threadless(func)
    ]
    if names:
        raise BuildError(
            msg(
                "no schedule rule gives these kernels threads, so they would run on the host, "
                "which cannot read the GPU's memory: {names}",
                names=names,
            )
        )


def _is_threadless(func: tirx.PrimFunc) -> bool:
    """Whether a function stores values itself, and not in threads of a GPU; shapes are computed on
    the host by functions that say so."""
    if func.attrs and func.attrs.get("tirx.is_host_func", False):
        return False
    stores: list[tirx.BufferStore] = []
    threads: list[tirx.Stmt] = []

    def note(s: tirx.Stmt) -> None:
        is_bound = isinstance(s, tirx.For) and s.kind == tirx.ForKind.THREAD_BINDING
        if is_bound or (isinstance(s, tirx.AttrStmt) and s.attr_key == "thread_extent"):
            threads.append(s)

    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, stores.append))
    tvm_ffi.structural_walk(func.body, ((tirx.For, tirx.AttrStmt), note))
    return bool(stores) and not threads
