from collections.abc import Mapping, Sequence
from typing import Any

from tvm.ir.expr import Expr, TensorRegion
from tvm.s_tir import dlight as dlight
from tvm.s_tir import meta_schedule as meta_schedule
from tvm.s_tir import schedule as schedule
from tvm.s_tir.schedule import Schedule as Schedule
from tvm.s_tir.schedule import ScheduleError as ScheduleError
from tvm.tirx import Buffer, IterVar, PrimFunc, Stmt

class SBlock(Stmt):
    iter_vars: Sequence[IterVar]
    reads: Sequence[TensorRegion]
    writes: Sequence[TensorRegion]
    name_hint: str
    body: Stmt
    init: Stmt | None
    alloc_buffers: Sequence[Buffer]
    annotations: Mapping[str, Any]
    def __init__(
        self,
        iter_vars: Sequence[IterVar],
        reads: Sequence[TensorRegion],
        writes: Sequence[TensorRegion],
        name_hint: str,
        body: Stmt,
        init: Stmt | None = None,
        alloc_buffers: Sequence[Buffer] | None = None,
        *,
        annotations: Mapping[str, Any] | None = None,
    ) -> None: ...

class SBlockRealize(Stmt):
    iter_values: Sequence[Expr]
    predicate: Expr
    block: SBlock
    def __init__(
        self, iter_values: Sequence[Expr], predicate: Expr | bool, block: SBlock
    ) -> None: ...

class TensorIntrin:
    @staticmethod
    def register(
        name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False
    ) -> TensorIntrin: ...
