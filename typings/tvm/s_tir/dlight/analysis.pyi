from collections.abc import Sequence
from typing import Literal

from tvm.ir.expr import Expr
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.tirx import Var

class IterInfo:
    kind: Literal["S", "R", "O"]
    var: Var
    loop_rv: LoopRV
    @property
    def dom(self) -> int | Expr: ...

class SBlockInfo:
    name: str
    iters: list[IterInfo]
    block_rv: SBlockRV
    def dom(self) -> list[int | Expr]: ...
    def dom_kind(self) -> str: ...
    def is_injective(self) -> bool: ...
    def is_elementwise(self, sch: Schedule) -> bool: ...
    def is_reduction(self) -> bool: ...

def collect_vars_used_in_prim_expr(expr: Expr) -> set[Var]: ...
def normalize_prim_func(sch: Schedule) -> list[SBlockInfo] | None: ...
