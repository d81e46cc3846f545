"""A small tunable matmul for the tests of the tuning engine, with candidates that misbehave.

It stands where `tvmscope.compiler.tunable.extract` does: params `tile` and `unroll` schedule the
matmul, `fault` plants a failure, `without` one that comes when `tile` is taken back.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Lowering, TuningTask
from tvmscope.measure.remote import here
from tvmscope.runtime import tvm_compat
from tvmscope.tuning.trials.builders import Tunables

SIZE = 64


def write_function(folder: Path, name: str = "matmul", size: int = SIZE) -> Path:
    """The unscheduled function in a file; called in a child process."""
    tvm = tvm_compat.import_tvm(torch=False)
    from tvm import te

    a, b = (te.placeholder((size, size), "float32", name=n) for n in ("A", "B"))
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    file = folder / f"{name}.json"
    file.write_text(tvm.ir.save_json(te.create_prim_func([a, b, c])))
    return file


def parallel_trace(file: Path) -> str:
    """A schedule of any function of one main block: its first loop in parallel, as a trace."""
    tvm_compat.import_tvm(torch=False)
    from tvm import s_tir

    from tvmscope.compiler.tunable import extract, traces

    sch = s_tir.Schedule(extract.read_function(file))
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        loop = next(x for x in sch.get_loops(block) if int(sch.get(x).extent) > 1)
        sch.parallel(loop)
    assert sch.trace is not None
    return traces.text(sch.trace)


def make_task(
    file: Path, candidates: tuple[Candidate, ...] = (), *, key: str = "matmul 64", calls: int = 1
) -> TuningTask:
    space = (
        Candidate(params={"tile": tile, "unroll": unroll})
        for tile in (2, 4, 8, 16, 32)
        for unroll in (0, 1)
    )
    return TuningTask(
        key=key,
        rule="tiny",
        kernel=key.replace(" ", "_"),
        calls=calls,
        flops=2.0 * SIZE**3,
        bytes=3.0 * 4 * SIZE**2,
        lowerings=(Lowering(params={}, function=str(file)),),
        candidates=candidates or (Candidate(), *space),
    )


def build_candidate(file: Path, candidate: Candidate, target: Target, output: Path) -> None:
    tvm = tvm_compat.import_tvm(torch=False)
    params = candidate.params
    if params.get("fault") == "build crash":
        os.abort()
    if params.get("fault") == "build hang":
        time.sleep(600)
    if params.get("without") == "crash" and "tile" not in params:
        os.abort()
    function = _scheduled(file, candidate).mod["main"]
    if params.get("fault") in ("run crash", "run hang", "wrong"):
        function = _faulty(tvm, str(params["fault"]))
    _write(function, target, output)


def trace_of(file: Path, candidate: Candidate, _: Target) -> tuple[str, list[str]]:
    from tvmscope.compiler.tunable import traces

    trace = _scheduled(file, candidate).trace
    return traces.text(trace), [str(line) for line in trace.as_python()]


def _scheduled(file: Path, candidate: Candidate) -> Any:
    from tvm import s_tir

    sch = s_tir.Schedule(_read(file))
    if candidate.trace is not None:
        s_tir.schedule.Trace.apply_json_to_schedule(json.loads(candidate.trace), sch)
    elif "tile" in candidate.params:
        _schedule(sch, candidate.params)
    return sch


def build_plain(file: Path, target: Target, output: Path) -> None:
    _write(_read(file), target, output)


def arguments(file: Path) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple((tuple(map(int, p.shape)), str(p.dtype)) for p in _read(file).params)


def _read(file: Path) -> Any:
    return tvm_compat.import_tvm(torch=False).ir.load_json(file.read_text())


def _write(function: Any, target: Target, output: Path) -> None:
    from tvmscope.compiler.codegen.linkers import link, linker_for
    from tvmscope.compiler.targets import to_tvm

    tvm = tvm_compat.import_tvm(torch=False)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    built = tvm.compile(module, to_tvm(target))
    built.export_library(str(output), fcompile=partial(link, linker_for(target)))


def _schedule(sch: Any, params: dict[str, Any]) -> None:
    block = sch.get_sblock("C")
    i, j, k = sch.get_loops(block)
    outer, inner = sch.split(j, factors=[None, params["tile"]])
    sch.reorder(i, outer, k, inner)
    sch.vectorize(inner)
    if params.get("unroll"):
        _, low = sch.split(k, factors=[None, 4])
        sch.unroll(low)
    sch.decompose_reduction(block, sch.get_loops(block)[2])


def _faulty(tvm: Any, fault: str) -> Any:
    from tvm import te

    a, b = (te.placeholder((SIZE, SIZE), "float32", name=n) for n in ("A", "B"))
    if fault == "wrong":
        c = te.compute((SIZE, SIZE), lambda i, j: a[i, j] + b[i, j], name="C")
        return te.create_prim_func([a, b, c])
    name = "abort" if fault == "run crash" else "pause"
    c = te.compute(
        (SIZE, SIZE),
        lambda i, j: a[i, j] + tvm.tirx.call_extern("int32", name).astype("float32"),
        name="C",
    )
    return te.create_prim_func([a, b, c])


TUNABLES = Tunables(
    build_candidate=here(build_candidate),
    build_plain=here(build_plain),
    arguments=here(arguments),
    trace_of=here(trace_of),
)
