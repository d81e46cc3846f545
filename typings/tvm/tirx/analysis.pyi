from tvm.ir import Expr
from tvm.tirx import Stmt, Var

def undefined_vars(node: Stmt | Expr, defs: list[Var] | None = None) -> list[Var]: ...
