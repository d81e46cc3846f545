from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from tvm.ir import BaseFunc, DictAttrs, IRModule, Node, PrimType, Type
from tvm.ir import TupleType as TupleType
from tvm.ir import transform as _transform
from tvm.ir.expr import Call as Call
from tvm.ir.expr import Expr as Expr
from tvm.ir.expr import GenericConst, GlobalVar, _CallableExpr
from tvm.ir.expr import Tuple as Tuple
from tvm.ir.expr import TupleGetItem as TupleGetItem
from tvm.ir.expr import Var as Var
from tvm.relax import analysis as analysis
from tvm.relax import backend as backend
from tvm.relax import expr as expr
from tvm.relax import expr_functor as expr_functor
from tvm.relax import op as op
from tvm.relax import transform as transform
from tvm.relax import vm_build as vm_build
from tvm.relax.expr_functor import PyExprMutator as PyExprMutator
from tvm.runtime import Executable, Object, Scriptable, Tensor
from tvm.runtime.vm import VirtualMachine as VirtualMachine
from tvm.target import Target

class TensorType(Type):
    shape: Expr | None
    dtype: PrimType
    ndim: int
    def __init__(
        self,
        shape: Expr | Sequence[Expr | int] | None = None,
        dtype: str | PrimType | None = "float32",
        vdevice: None = None,
        ndim: int = -1,
        span: None = None,
    ) -> None: ...

class ShapeExpr(_CallableExpr):
    values: Sequence[Expr]
    def __init__(self, values: Sequence[Expr | int], span: None = None) -> None: ...
    def __getitem__(self, index: int) -> Expr: ...
    def __len__(self) -> int: ...

class DataflowVar(Var): ...

class If(_CallableExpr):
    cond: Expr
    true_branch: Expr
    false_branch: Expr

class Binding(Node, Scriptable):
    var: Var
    value: Expr  # of every kind of binding, if not of this common class

class VarBinding(Binding):
    def __init__(self, var: Var, value: Expr, span: None = None) -> None: ...

class BindingBlock(Node, Scriptable):
    bindings: Sequence[Binding]
    def __init__(self, bindings: Sequence[Binding], span: None = None) -> None: ...

class DataflowBlock(BindingBlock): ...

class SeqExpr(_CallableExpr):
    blocks: Sequence[BindingBlock]
    body: Expr
    def __init__(self, blocks: Sequence[BindingBlock], body: Expr, span: None = None) -> None: ...

class Function(BaseFunc, Scriptable):
    params: Sequence[Var]
    body: SeqExpr
    ret_ty: Type
    is_pure: bool
    def __init__(
        self,
        params: Sequence[Var],
        body: Expr,
        ret_ty: Type | None = None,
        is_pure: bool | None = True,
        attrs: DictAttrs | None = None,
        span: None = None,
    ) -> None: ...
    def bind_params(self, binding_map: Mapping[str, Any] | Mapping[Var, Any]) -> Function: ...

class _Scope:
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None: ...

class ExternFunc(BaseFunc):
    global_symbol: str
    def __init__(self, global_symbol: str, ty: Type | None = None, span: None = None) -> None: ...

class BlockBuilder(Object):
    def __init__(self, mod: IRModule | None = None) -> None: ...
    def function(
        self,
        name: str,
        params: Var | Tuple | Sequence[Var] | None = None,
        attrs: Mapping[str, Any] | None = None,
        pure: bool = True,
        private: bool = False,
    ) -> _Scope: ...
    def dataflow(self) -> _Scope: ...
    def emit(self, expr: Expr, name_hint: str = "") -> Var: ...
    # the function makes tensors of tensors; what else it takes is handed through
    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Call: ...
    def emit_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var: ...
    def emit_output(self, output: Expr | Sequence[Expr], name_hint: str = "") -> Var: ...
    def emit_func_output(
        self, output: Expr | Sequence[Expr], params: Var | Tuple | Sequence[Var] | None = None
    ) -> GlobalVar: ...
    def normalize(self, expr: Expr) -> Expr: ...
    def current_block_is_dataflow(self) -> bool: ...
    def get(self) -> IRModule: ...
    def finalize(self) -> IRModule: ...
    def add_func(self, func: BaseFunc, func_name: str) -> GlobalVar: ...
    def update_func(self, gv: GlobalVar, updated_func: BaseFunc) -> None: ...
    def lookup_binding(self, var: Var) -> Expr | None: ...

class ExecBuilder:
    def __init__(self) -> None: ...

def const(
    value: bool | float | np.ndarray[Any, Any] | np.generic | Tensor, dtype: str | None = None
) -> GenericConst: ...
def build(
    mod: IRModule,
    target: str | Target | None = None,
    params: Mapping[str, Any] | None = None,
    relax_pipeline: str | _transform.Pass | None = "default",
    tir_pipeline: str | _transform.Pass | None = "default",
    exec_mode: str = "bytecode",
    *,
    system_lib: bool | None = None,
) -> Executable: ...
