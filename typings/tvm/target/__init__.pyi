from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, overload

from tvm.runtime import Object
from tvm.target import codegen as codegen

class TargetKind(Object):
    name: str

class Target(Object):
    kind: TargetKind
    keys: Sequence[str]
    attrs: Mapping[str, Any]
    host: Target | None
    def __init__(
        self,
        target: str | Mapping[str, Any] | Target,
        host: str | Mapping[str, Any] | Target | None = None,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        ptype: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def export(self) -> Mapping[str, Any]: ...
    @overload
    @staticmethod
    def current(allow_none: Literal[False]) -> Target: ...
    @overload
    @staticmethod
    def current(allow_none: bool = True) -> Target | None: ...
