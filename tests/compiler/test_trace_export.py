"""Trace records become a database that MetaSchedule itself loads and answers from."""

from __future__ import annotations

import json
from pathlib import Path

import tvm
from tvm import te

from support.command import run
from support.trials import trial
from tvmscope.compiler import targets
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate
from tvmscope.runtime import tvm_compat
from tvmscope.tuning.records.database import Database

TARGET = Target(kind="llvm", arch="x86-64", cores=2)


def matmul(n: int) -> tvm.tirx.PrimFunc:
    a, b = (te.placeholder((n, n), "float32", name=name) for name in "ab")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")


def trace_text(trace: tvm.s_tir.schedule.Trace) -> str:
    """A schedule's trace as a candidate keeps it; `as_json` leaves TVM's own numbers in it."""
    return json.dumps(trace.as_json(), separators=(",", ":"), default=lambda number: number.value)


def tiled(function: tvm.tirx.PrimFunc, factor: int) -> str:
    schedule = tvm.s_tir.Schedule(function)
    loop = schedule.get_loops(schedule.get_sblock("c"))[1]
    _outer, inner = schedule.split(loop, (None, factor))
    schedule.vectorize(inner)
    return trace_text(schedule.trace)


def test_metaschedule_finds_the_best_trace_in_what_was_exported(tmp_path: Path) -> None:
    tvm_compat.import_tensor_intrinsics()
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    db = Database(tmp_path / "records.jsonl")
    function = matmul(32)
    for factor, seconds in ((4, 2e-3), (8, 1e-3), (16, 3e-3)):
        candidate = Candidate(trace=tiled(function, factor))
        one = trial(candidate=candidate, seconds=seconds, target=TARGET, workload="matmul 32")
        db.append(one, function=tvm.ir.save_json(function))
    db.append(trial(1, target=TARGET))

    done = run("db", "export", "--db", "records.jsonl", "--metaschedule", "ms", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 records; 1 have no trace" in done.stderr
    loaded = JSONDatabase(work_dir=str(tmp_path / "ms"), allow_missing=False)
    assert len(loaded) == 3
    found = loaded.query_tuning_record(
        tvm.IRModule({"main": function}), tvm.target.Target(targets.to_tvm(TARGET)), "main"
    )
    assert min(map(float, found.run_secs)) == 1e-3
    assert "factors=[None, 8]" in str(found.trace)
