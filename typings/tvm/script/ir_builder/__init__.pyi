from types import TracebackType
from typing import Any, Self

from tvm.runtime import Object
from tvm.script.ir_builder import tirx as tirx

class IRBuilder(Object):
    def __init__(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        ptype: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def get(self) -> Any: ...
    @staticmethod
    def is_in_scope() -> bool: ...
