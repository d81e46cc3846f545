from collections.abc import Callable
from typing import Any

from tvm.runtime import Device, Executable, Module, PackedFunc, _BenchmarkResult

class VirtualMachine:
    module: Module
    def __init__(
        self,
        rt_mod: Module | Executable,
        device: Device | list[Device],
        memory_cfg: str | dict[Device, str] | None = None,
    ) -> None: ...
    def __getitem__(self, key: str) -> PackedFunc: ...
    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None: ...
    def invoke_stateful(self, func_name: str) -> None: ...
    def get_outputs(self, func_name: str) -> Any: ...
    def save_function(
        self,
        func_name: str,
        saved_name: str,
        *args: Any,
        include_return: bool = True,
        **kwargs: Any,
    ) -> None: ...
    def set_instrument(self, instrument: Callable[..., Any] | None) -> None: ...
    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., _BenchmarkResult]: ...
