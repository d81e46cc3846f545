from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tvm.ir import IRModule
from tvm.runtime import Object

class PassInfo(Object):
    name: str
    opt_level: int

class PassContext(Object):
    config: Mapping[str, Any]
    instruments: Sequence[Any] | None
    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        ptype: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    @staticmethod
    def current() -> PassContext: ...

class Pass(Object):
    @property
    def info(self) -> PassInfo: ...
    def __call__(self, mod: IRModule) -> IRModule: ...

class ModulePass(Pass): ...

class Sequential(Pass):
    passes: Sequence[Pass]
    def __init__(
        self,
        passes: Sequence[Pass] | None = None,
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> None: ...

def module_pass(
    pass_func: None = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
    traceable: bool = False,
) -> Callable[[Callable[[IRModule, PassContext], IRModule]], ModulePass]: ...
