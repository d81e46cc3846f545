from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
PackedFunc: TypeAlias = Callable[..., Any]
"""A function that TVM registers by name; its arguments are checked when it is called."""

class Object:
    def __eq__(self, other: object) -> Any: ...
    def __hash__(self) -> int: ...
    def same_as(self, other: object) -> bool: ...

class Scriptable:
    def script(
        self,
        *,
        name: str | None = None,
        show_meta: bool = False,
        syntax_sugar: bool = True,
    ) -> str: ...

class Device:
    type: str
    index: int
    def __init__(self, device_type: int | str, index: int | None = None) -> None: ...
    def sync(self, stream: int | None = None) -> None: ...

class Tensor(Object):
    shape: tuple[int, ...]
    dtype: Any
    device: Device
    def numpy(self) -> Array: ...
    def copyfrom(self, source_array: Array | Tensor) -> Tensor: ...
    def copyto(self, target: Tensor | Device, mem_scope: str | None = None) -> Tensor: ...

class _BenchmarkResult:
    results: Sequence[float]
    median: float

class Module(Object):
    kind: str
    imports: Sequence[Module]
    def __getitem__(self, name: str) -> PackedFunc: ...
    def get_function(self, name: str, query_imports: bool = False) -> PackedFunc: ...
    def inspect_source(self, fmt: str = "") -> str: ...
    def write_to_file(self, file_name: str, fmt: str = "") -> None: ...
    def export_library(
        self,
        file_name: str | Path,
        *,
        fcompile: Callable[..., Any] | None = None,
        fpack_imports: Callable[..., Any] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | None = None,
        **kwargs: Any,
    ) -> Any: ...
    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str = "",
    ) -> Callable[..., _BenchmarkResult]: ...

class Executable:
    mod: Module
    def __getitem__(self, name: str) -> PackedFunc: ...
    def export_library(
        self,
        file_name: str | Path,
        *,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | None = None,
        **kwargs: Any,
    ) -> Any: ...

def cpu(dev_id: int = 0) -> Device: ...
def cuda(dev_id: int = 0) -> Device: ...
def device(device_type: str, index: int | None = None) -> Device: ...
def empty(
    shape: Sequence[int],
    dtype: str = "float32",
    device: Device | None = None,
    mem_scope: str | None = None,
) -> Tensor: ...
def from_dlpack(ext_tensor: Any) -> Tensor: ...
def load_module(path: str | Path) -> Module: ...
def num_threads() -> int: ...
def tensor(arr: Any, device: Device | None = None, mem_scope: str | None = None) -> Tensor: ...
