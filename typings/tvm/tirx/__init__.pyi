from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias

from tvm.ir import BaseFunc, DictAttrs, DType, IRModule, PrimType, Range, TensorLoad, Type
from tvm.ir import transform as _transform
from tvm.ir.expr import Constant, Operand
from tvm.ir.expr import Expr as Expr
from tvm.ir.expr import Var as Var
from tvm.runtime import Module, Object, Scriptable
from tvm.target import Target

Buffer: TypeAlias = Var
"""A buffer is a variable whose type is a BufferType."""

class BufferType(Type):
    dtype: PrimType
    storage_scope: str
    shape: Sequence[Expr]
    strides: Sequence[Expr]
    elem_offset: Expr

# not an expression by itself, but taken for its variable wherever one is asked for
class IterVar(Expr, Scriptable):
    DataPar: int
    ThreadIndex: int
    CommReduce: int
    dom: Range
    var: Var
    iter_type: int
    thread_tag: str
    def __init__(self, dom: Range, var: Var, iter_type: int, thread_tag: str = "") -> None: ...

class PrimFunc(BaseFunc, Scriptable):
    ret_type: Type
    params: Sequence[Var]
    body: Stmt
    def __init__(
        self,
        params: Sequence[Var],
        body: Stmt,
        ret_type: Type | None = None,
        attrs: DictAttrs | None = None,
        span: None = None,
    ) -> None: ...
    def with_body(self, new_body: Stmt, span: None = None) -> PrimFunc: ...

# ---- numbers -------------------------------------------------------------------------------------

class IntImm(Constant):
    value: int
    def __init__(self, dtype: DType, value: int, span: None = None) -> None: ...
    def __int__(self) -> int: ...
    def __bool__(self) -> bool: ...

class FloatImm(Constant):
    value: float
    def __init__(self, dtype: DType, value: float, span: None = None) -> None: ...
    def __float__(self) -> float: ...

class Cast(Expr, Scriptable):
    value: Expr
    def __init__(self, dtype: DType, value: Operand, span: None = None) -> None: ...

class Shuffle(Expr, Scriptable):
    vectors: Sequence[Expr]
    indices: Sequence[Expr]
    def __init__(
        self, vectors: Sequence[Expr], indices: Sequence[Expr], span: None = None
    ) -> None: ...

class Select(Expr, Scriptable):
    condition: Expr
    true_value: Expr
    false_value: Expr
    def __init__(
        self, condition: Operand, true_value: Operand, false_value: Operand, span: None = None
    ) -> None: ...

class Let(Expr, Scriptable):
    var: Var
    value: Expr
    body: Expr
    def __init__(self, var: Var, value: Operand, body: Operand, span: None = None) -> None: ...

class Not(Expr, Scriptable):
    a: Expr
    def __init__(self, a: Operand, span: None = None) -> None: ...

class _Binary(Expr, Scriptable):
    a: Expr
    b: Expr
    def __init__(self, a: Operand, b: Operand, span: None = None) -> None: ...

class Add(_Binary): ...
class Sub(_Binary): ...
class Mul(_Binary): ...
class Div(_Binary): ...
class Mod(_Binary): ...
class FloorDiv(_Binary): ...
class FloorMod(_Binary): ...
class Min(_Binary): ...
class Max(_Binary): ...
class EQ(_Binary): ...
class NE(_Binary): ...
class LT(_Binary): ...
class LE(_Binary): ...
class GT(_Binary): ...
class GE(_Binary): ...
class And(_Binary): ...
class Or(_Binary): ...

def BufferLoad(buffer: Buffer, indices: Sequence[Operand], span: None = None) -> TensorLoad: ...
def abs(x: Operand, span: None = None) -> Expr: ...
def address_of(obj: Expr, span: None = None) -> Expr: ...
def all(*args: Operand, span: None = None) -> Expr: ...
def any(*args: Operand, span: None = None) -> Expr: ...
def bitwise_and(x: Operand, y: Operand, span: None = None) -> Expr: ...
def call_extern(dtype: DType, func_name: str, *args: Operand | str, span: None = None) -> Expr: ...
def call_intrin(
    dtype: str | Type, func_name: str, *args: Operand | str, attrs: None = None, span: None = None
) -> Expr: ...
def call_llvm_intrin(dtype: DType, name: str, *args: Operand, span: None = None) -> Expr: ...
def call_pure_extern(
    dtype: DType, func_name: str, *args: Operand | str, span: None = None
) -> Expr: ...
def const(value: float, dtype: DType | None = None, span: None = None) -> Expr: ...
def decl_buffer(
    shape: Sequence[Expr | int],
    dtype: DType | None = None,
    name: str = "buffer",
    data: Var | None = None,
    strides: Sequence[Expr | int] | None = None,
    elem_offset: Expr | None = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    span: None = None,
    layout: str | None = "default",
) -> Buffer: ...
def exp(x: Operand) -> Expr: ...
def floor(x: Operand, span: None = None) -> Expr: ...
def floordiv(a: Operand, b: Operand, span: None = None) -> Expr: ...
def floormod(a: Operand, b: Operand, span: None = None) -> Expr: ...
def if_then_else(cond: Operand, t: Operand, f: Operand, span: None = None) -> Expr: ...
def infinity(dtype: DType, span: None = None) -> Expr: ...
def isnan(x: Operand, span: None = None) -> Expr: ...

# of two numbers, or of all along an axis
def max(expr: Operand, axis: Operand | Sequence[IterVar], where: Expr | None = None) -> Expr: ...
def min(expr: Operand, axis: Operand | Sequence[IterVar], where: Expr | None = None) -> Expr: ...
def log(x: Operand) -> Expr: ...
def reinterpret(dtype: DType, value: Operand, span: None = None) -> Expr: ...
def sqrt(x: Operand) -> Expr: ...
def tanh(x: Operand) -> Expr: ...

# ---- statements ----------------------------------------------------------------------------------

class Stmt(Object, Scriptable): ...

class ForKind(IntEnum):
    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4

class For(Stmt):
    loop_var: Var
    min: Expr
    extent: Expr
    kind: ForKind
    body: Stmt
    thread_binding: IterVar | None
    annotations: Mapping[str, Any]
    step: Expr | None
    def __init__(
        self,
        loop_var: Var,
        min: Expr | int,
        extent: Expr | int,
        kind: ForKind,
        body: Stmt,
        thread_binding: IterVar | None = None,
        annotations: Mapping[str, Any] | None = None,
        step: Expr | None = None,
        span: None = None,
    ) -> None: ...

class While(Stmt):
    condition: Expr
    body: Stmt

class BufferStore(Stmt):
    buffer: Buffer
    value: Expr
    indices: Sequence[Expr]
    def __init__(
        self, buffer: Buffer, value: Expr, indices: Sequence[Expr], span: None = None
    ) -> None: ...

class SeqStmt(Stmt):
    seq: Sequence[Stmt]
    def __init__(self, seq: Sequence[Stmt], span: None = None) -> None: ...
    def __getitem__(self, i: int) -> Stmt: ...
    def __len__(self) -> int: ...

class AllocBuffer(Stmt):
    buffer: Buffer
    def __init__(self, buffer: Buffer) -> None: ...

class AttrStmt(Stmt):
    node: Object
    attr_key: str
    value: Expr
    body: Stmt
    def __init__(
        self, node: Object, attr_key: str, value: Expr, body: Stmt, span: None = None
    ) -> None: ...

class IfThenElse(Stmt):
    condition: Expr
    then_case: Stmt
    else_case: Stmt | None
    def __init__(
        self, condition: Expr, then_case: Stmt, else_case: Stmt | None, span: None = None
    ) -> None: ...

class Evaluate(Stmt):
    value: Expr
    def __init__(self, value: Expr, span: None = None) -> None: ...

def build(
    mod: PrimFunc | IRModule,
    target: str | Target | None = None,
    pipeline: str | _transform.Pass | Callable[..., Any] | None = "default",
) -> Module: ...
