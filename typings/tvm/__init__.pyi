from collections.abc import Callable
from typing import Any, Literal, overload

from tvm import ir as ir
from tvm import relax as relax
from tvm import runtime as runtime
from tvm import s_tir as s_tir
from tvm import sym as sym
from tvm import target as target
from tvm import te as te
from tvm import tirx as tirx
from tvm import topi as topi
from tvm.ir import IRModule as IRModule
from tvm.ir import transform as transform
from tvm.runtime import Executable, PackedFunc
from tvm.runtime import cpu as cpu
from tvm.runtime import cuda as cuda
from tvm.runtime import device as device
from tvm.target import Target

__version__: str

def compile(
    mod: IRModule | tirx.PrimFunc,
    target: Target | None = None,
    *,
    relax_pipeline: transform.Pass | Callable[..., Any] | str | None = "default",
    tir_pipeline: transform.Pass | Callable[..., Any] | str | None = "default",
) -> Executable: ...
@overload
def get_global_func(name: str, allow_missing: Literal[False] = False) -> PackedFunc: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> PackedFunc | None: ...
@overload
def register_global_func(
    func_name: str, f: None = None, override: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...
@overload
def register_global_func(
    func_name: str, f: Callable[..., Any], override: bool = False
) -> Callable[..., Any]: ...
