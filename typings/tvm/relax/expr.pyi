from tvm.ir import Type
from tvm.ir.expr import Expr

def _update_type(expr: Expr, ty: Type | None) -> None: ...
