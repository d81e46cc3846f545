"""Writes trace records as a plain MetaSchedule database, with MetaSchedule itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tvmscope.core.target import Target
from tvmscope.errors import TvmscopeError, one_line
from tvmscope.runtime import tvm_compat

if TYPE_CHECKING:
    from tvm.s_tir.meta_schedule.database import JSONDatabase


@dataclass(frozen=True, kw_only=True)
class TraceRecord:
    """A trace, its function's file (as TVM's JSON), and the measurement."""

    function: str
    trace: str
    seconds: tuple[float, ...]
    target: Target


def write(records: list[TraceRecord], folder: str) -> tuple[int, list[str]]:
    """Write `database_workload.json` and `database_tuning_record.json`; call it in a child process.

    Return how many were written, and why others were not.
    """
    tvm_compat.import_tvm(torch=False)
    tvm_compat.import_tensor_intrinsics()
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    Path(folder).mkdir(parents=True, exist_ok=True)
    database = JSONDatabase(work_dir=folder)
    written, failures = 0, []
    for record in records:
        try:
            _commit(database, record)
            written += 1
        except (TvmscopeError, RuntimeError, ValueError, TypeError) as e:
            # TVM reports a trace that does not fit its function as one of these
            failures.append(f"{Path(record.function).name}: {one_line(e)}")
    return written, failures


def _commit(database: JSONDatabase, record: TraceRecord) -> None:
    from tvm.ir import IRModule, load_json
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.database import TuningRecord
    from tvm.s_tir.schedule import Schedule, Trace
    from tvm.target import Target as TvmTarget

    from tvmscope.compiler.targets import to_tvm

    loaded = load_json(Path(record.function).read_text())
    module = loaded if isinstance(loaded, IRModule) else IRModule({"main": loaded})
    schedule = Schedule(module)
    Trace.apply_json_to_schedule(json.loads(record.trace), schedule)
    workload = database.commit_workload(module)
    database.commit_tuning_record(
        TuningRecord(
            schedule.trace,
            workload,
            list(record.seconds),
            TvmTarget(to_tvm(record.target)),
            ArgInfo.from_entry_func(module, remove_preproc=False),
        )
    )
