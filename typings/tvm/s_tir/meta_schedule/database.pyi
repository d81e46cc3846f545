from collections.abc import Sequence
from typing import Any

from tvm.ir import IRModule
from tvm.runtime import Object
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.schedule import Trace
from tvm.target import Target

class Workload(Object):
    mod: IRModule
    def __init__(self, mod: IRModule) -> None: ...
    def as_json(self) -> Any: ...

class TuningRecord(Object):
    trace: Trace
    workload: Workload
    run_secs: Sequence[float] | None
    def __init__(
        self,
        trace: Trace,
        workload: Workload,
        run_secs: Sequence[float] | None = None,
        target: Target | None = None,
        args_info: Sequence[ArgInfo] | None = None,
    ) -> None: ...
    def as_json(self) -> Any: ...

class Database(Object):
    def commit_workload(self, mod: IRModule) -> Workload: ...
    def commit_tuning_record(self, record: TuningRecord) -> None: ...
    def get_all_tuning_records(self) -> list[TuningRecord]: ...
    def __len__(self) -> int: ...

class JSONDatabase(Database):
    def __init__(
        self,
        path_workload: str | None = None,
        path_tuning_record: str | None = None,
        *,
        work_dir: str | None = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ) -> None: ...

class MemoryDatabase(Database):
    def __init__(self, module_equality: str = "structural") -> None: ...
