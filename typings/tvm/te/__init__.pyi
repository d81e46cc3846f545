from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm.ir import DType, PrimType, Range
from tvm.ir.expr import Expr, Operand
from tvm.runtime import Object
from tvm.tirx import Buffer, IterVar, PrimFunc, Stmt, Var

class _Operation(Object):
    name: str
    tag: str
    attrs: Mapping[str, Any]
    def output(self, index: int) -> Tensor: ...

class Tensor(Expr):
    op: _Operation
    shape: Sequence[Expr]
    value_index: int
    @property
    def dtype(self) -> PrimType: ...
    @property
    def ndim(self) -> int: ...
    @property
    def name(self) -> str: ...
    def __call__(self, *indices: Operand) -> Expr: ...
    def __getitem__(self, indices: Any) -> Expr: ...

def abs(x: Operand, span: None = None) -> Expr: ...

# what a computation gives is one tensor, or of a tuple as many
def compute(
    shape: Sequence[Expr | int],
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Tensor: ...
def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]: ...
def create_prim_func(
    ops: Sequence[Tensor | Var], index_dtype_override: str | None = None
) -> PrimFunc: ...
def exp(x: Operand) -> Expr: ...
def extern(
    shape: Sequence[Sequence[Expr | int]],
    inputs: Sequence[Tensor],
    fcompute: Callable[[Sequence[Buffer], Sequence[Buffer]], Stmt],
    name: str = "extern",
    dtype: DType | Sequence[DType] | None = None,
    in_buffers: Sequence[Buffer] | None = None,
    out_buffers: Sequence[Buffer] | None = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor | list[Tensor]: ...
def max(expr: Operand, axis: Operand | Sequence[IterVar], where: Expr | None = None) -> Expr: ...
def placeholder(
    shape: Sequence[Expr | int], dtype: DType | None = None, name: str = "placeholder"
) -> Tensor: ...
def reduce_axis(
    dom: Range | Sequence[Expr | int], name: str = "rv", thread_tag: str = "", span: None = None
) -> IterVar: ...
def sqrt(x: Operand) -> Expr: ...
def sum(expr: Operand, axis: IterVar | Sequence[IterVar], where: Expr | None = None) -> Expr: ...
def thread_axis(
    dom: Range | Sequence[Expr | int] | str | None = None,
    tag: str = "",
    name: str = "",
    span: None = None,
) -> IterVar: ...
