from typing import Any

from tvm.ir import IRModule
from tvm.runtime import Object
from tvm.tirx import PrimFunc

class ArgInfo(Object):
    def as_json(self) -> Any: ...
    @staticmethod
    def from_prim_func(func: PrimFunc) -> list[ArgInfo]: ...
    @staticmethod
    def from_entry_func(mod: IRModule, remove_preproc: bool = True) -> list[ArgInfo]: ...
