from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import tvm_ffi
from tvm.ir.expr import Expr, Operand, Var
from tvm.runtime import Object
from tvm.tirx import Buffer, IterVar

class _Frame(Object):
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class _Loop(_Frame):
    def __enter__(self) -> Var: ...  # type: ignore[override]  # a loop is entered with its variable

# a buffer whose elements can be assigned; all else is the buffer's
class _BufferProxy:
    def __getitem__(self, index: Any) -> Expr: ...
    def __setitem__(self, index: Any, value: Operand) -> None: ...
    dtype: tvm_ffi.dtype
    shape: Sequence[Expr]
    data: Var

def Else() -> _Frame: ...
def If(condition: Operand) -> _Frame: ...
def Then() -> _Frame: ...
def While(condition: Operand) -> _Frame: ...
def alloc_buffer(
    shape: Sequence[Expr | int],
    dtype: str = "float32",
    data: Var | None = None,
    strides: Sequence[Expr] | None = None,
    elem_offset: Expr | None = None,
    byte_offset: Expr | None = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    layout: str | None = "default",
    allocated_addr: int | tuple[int, ...] | None = None,
    annotations: Mapping[str, Any] | None = None,
) -> Buffer: ...
def arg(name: str, obj: Var) -> Buffer: ...
def attr(
    node_or_dict: IterVar | Mapping[str, Any],
    attr_key: str | None = None,
    value: Expr | str | None = None,
) -> _Frame: ...
def buffer(
    shape: Sequence[Expr | int],
    dtype: str = "float32",
    data: Var | None = None,
    strides: Sequence[Expr] | None = None,
    elem_offset: Expr | None = None,
    byte_offset: Expr | None = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    layout: str | None = "default",
    allocated_addr: int | tuple[int, ...] | None = None,
    buffer_name: str = "",
) -> Buffer: ...
def buffer_proxy(buf: Buffer) -> _BufferProxy: ...
def evaluate(value: Expr) -> None: ...
def frame_scope(frames: Sequence[_Frame]) -> _Frame: ...
def func_attr(attrs: Mapping[str, Any]) -> None: ...
def func_name(name: str) -> None: ...
def parallel(
    start: Operand,
    stop: Operand | None = None,
    *,
    annotations: Mapping[str, Any] | None = None,
    step: Operand | None = None,
    dtype: str | None = None,
) -> _Loop: ...
def prim_func(
    is_private: bool = False,
    s_tir: bool = False,
    persistent: bool = False,
    *,
    private: bool | None = None,
) -> _Frame: ...
def ramp(base: Operand, stride: Operand, lanes: int, span: None = None) -> Expr: ...
def serial(
    start: Operand,
    stop: Operand | None = None,
    *,
    annotations: Mapping[str, Any] | None = None,
    step: Operand | None = None,
    unroll: bool | int | None = None,
    dtype: str | None = None,
) -> _Loop: ...
