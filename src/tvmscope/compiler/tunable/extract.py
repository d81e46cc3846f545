"""Finds the tunable parts of a model: heavy kernels, ways to lower them, and their parameters.

A kernel's parameters are of two kinds. Some change the computation and are decided while the graph
is lowered (Winograd or direct, the width that a row is padded to); the model is lowered once for
each way of deciding them. The others belong to the schedule alone.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import tvm
from tvm import s_tir, tirx

from tvmscope.compiler import frontends, pipeline
from tvmscope.compiler.codegen import machine_code
from tvmscope.compiler.codegen.linkers import link, linker_for
from tvmscope.compiler.codegen.shares import ASYNCHRONOUS
from tvmscope.compiler.describe import kernel_work, sources
from tvmscope.compiler.describe.kernel_ir import RULE
from tvmscope.compiler.manifest.rule import ScheduleRule, Space
from tvmscope.compiler.rewrites.cpu.split_batch import parts_of
from tvmscope.compiler.schedules import rule_named, rules
from tvmscope.compiler.schedules.apply import (
    finished,
    is_scheduled,
    replaying,
    schedule_first,
    take,
)
from tvmscope.compiler.targets import to_tvm
from tvmscope.compiler.tunable import knobs, traces, unit_tasks
from tvmscope.core.artifact import KernelCall
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.core.tuning import Candidate, Lowering, Params, TuningTask
from tvmscope.cuda.cubins import kernel_file
from tvmscope.errors import BuildError, one_line
from tvmscope.messages import Text, clauses, marked, msg
from tvmscope.runtime import tvm_compat

_WAYS: tuple[Params, ...] = (
    {},
    {"kernel": "direct"},
    {"kernel": "winograd4"},
    {"kernel": "winograd2"},
    {"kernel": "direct", "rank": 1},
    {"kernel": "winograd4", "rank": 1},
    {"kernel": "direct", "rank": 2},
    {"kernel": "winograd2", "rank": 1},
    {"kernel": "winograd4", "share": 1},
)
"""Ways to lower the whole model, in turn; one that does not fit a workload leaves it unchanged."""
_LAYOUT = "layout"
"""The first phase in which parameters matter."""
_STOCK = "tvmscope.stock"
"""Marks a kernel of TVM's own pipeline, which is not offered to our rules."""
_AS_WRITTEN = ScheduleRule(
    name="as-written",
    devices=("cpu", "cuda"),
    version=1,
    words=marked("Runs the loops as they are written."),
    schedule=lambda func, _: s_tir.Schedule(func),
)
_MOST_CANDIDATES = 240
"""The most candidates per task: more could not be tried in any sensible time."""


def extract(
    prepared: Prepared, target: Target, options: CompileOptions, folder: Path
) -> list[TuningTask]:
    """Return the tasks of a model; `folder` gets a file per kernel for each way to lower it."""
    folder.mkdir(parents=True, exist_ok=True)
    imported = frontends.import_model(prepared, options.fallback)
    if options.pipeline == "tvm-tuned":  # no rule of ours, and one way to lower
        lowered = _lower(imported.module, target, options, until="schedule")
        called = sources.name_calls(lowered.calls, imported.sources)
        return _stock_tasks(lowered.module, called, folder)
    found: dict[str, TuningTask] = {}
    graph = _lower(imported.module, target, options, until=_LAYOUT).module
    for way in _WAYS if target.kind == "llvm" else _WAYS[:1]:
        asked = replace(options, overrides={**options.overrides, "params": way})
        lowered = _lower(graph, target, asked, since=_LAYOUT, until="schedule")
        if not way:
            called = parts_of(graph) * sources.name_calls(lowered.calls, imported.sources)
            found = _tasks(lowered.module, called, target, folder, library=options.library)
            continue
        for _, func in lowered.module.functions_items():
            if isinstance(func, tirx.PrimFunc) and (key := knobs.workload_of(func)) in found:
                found[key] = _with_lowering(found[key], func, target, folder)
    return [replace(t, candidates=tuple(_spread(t.candidates))) for t in found.values()]


def _lower(
    module: tvm.IRModule,
    target: Target,
    options: CompileOptions,
    *,
    since: str | None = None,
    until: str,
) -> pipeline.Lowered:
    """Run a part of the pipeline, ignoring earlier tuning results."""
    own = replace(options, choices={})
    return pipeline.run(module, target, _tvm_target(target), own, since=since, until=until)


def _tvm_target(target: Target) -> tvm.target.Target:
    """Return TVM's target with a host: a CPU is its own host, and launches a GPU's kernels."""
    host = to_tvm(target) if target.kind == "llvm" else {"kind": "llvm"}
    return tvm.target.Target(to_tvm(target), host=host)


def _tasks(
    module: tvm.IRModule,
    called: Sequence[KernelCall],
    target: Target,
    folder: Path,
    *,
    library: bool | tuple[str, ...],
) -> dict[str, TuningTask]:
    counts = Counter(call.kernel for call in called)
    origins = {call.kernel: call.source_ops for call in reversed(called)}
    merged: dict[str, TuningTask] = {}
    for var, func in module.functions_items():
        if not isinstance(func, tirx.PrimFunc) or var.name_hint not in counts:
            continue
        name = var.name_hint
        unit = unit_tasks.task_of(
            func, name, counts[name], origins[name], target, folder, library=library
        )
        if unit is not None:
            known = merged.setdefault(unit.key, replace(unit, calls=0))
            merged[unit.key] = replace(known, calls=known.calls + unit.calls)
        if is_scheduled(func):  # by the pass that made it: no choice would affect it
            continue
        key, calls_here = knobs.workload_of(func), counts[var.name_hint]
        if key in merged:  # the same operator with another epilogue: one choice applies to both
            merged[key] = replace(merged[key], calls=merged[key].calls + calls_here)
            continue
        work = kernel_work.count(func)
        task = TuningTask(
            key=key,
            rule=_rule(func, var.name_hint, target),
            kernel=var.name_hint,
            calls=calls_here,
            flops=work.flops,
            bytes=work.bytes,
            lowerings=(),
            source_ops=origins[var.name_hint],
        )
        merged[key] = _with_lowering(task, func, target, folder)
    return merged


def _stock_tasks(
    module: tvm.IRModule, called: Sequence[KernelCall], folder: Path
) -> list[TuningTask]:
    """Return the kernels of TVM's own pipeline: only MetaSchedule has candidates for them."""
    counts = Counter(call.kernel for call in called)
    found: dict[str, TuningTask] = {}
    for var, func in module.functions_items():
        if not isinstance(func, tirx.PrimFunc) or var.name_hint not in counts:
            continue
        key, work = knobs.workload_of(func), kernel_work.count(func)
        if key in found:
            known = found[key]
            found[key] = replace(known, calls=known.calls + counts[var.name_hint])
            continue
        file = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:12]}-0.json"
        stock = _named_main(func).with_attr(_STOCK, True)
        file.write_text(tvm.ir.save_json(stock), encoding="utf-8")
        found[key] = TuningTask(
            key=key,
            rule=None,
            kernel=var.name_hint,
            calls=counts[var.name_hint],
            flops=work.flops,
            bytes=work.bytes,
            lowerings=(Lowering(params={}, function=str(file)),),
        )
    return list(found.values())


def _with_lowering(
    task: TuningTask, func: tirx.PrimFunc, target: Target, folder: Path
) -> TuningTask:
    """Return the task with one more way to lower it, and the candidates that begin with it."""
    params = _graph_params(func)
    if any(known.params == params for known in task.lowerings):
        return task
    digest = hashlib.sha256(task.key.encode()).hexdigest()[:12]
    file = folder / f"{digest}-{len(task.lowerings)}.json"
    file.write_text(tvm.ir.save_json(_named_main(func)), encoding="utf-8")
    rule, space = _space(func, target)
    work = kernel_work.count(func)
    candidates = [Candidate(params={**params, **p}) for p in _combinations(space)]
    own = {name: values[0] for name, values in space.items()}
    lowering = Lowering(
        params=params,
        function=str(file),
        rule=rule or task.rule,
        own=own,
        flops=work.flops,
        bytes=work.bytes,
    )
    return replace(
        task,
        lowerings=(*task.lowerings, lowering),
        candidates=(*task.candidates, *candidates),
    )


def _rule(func: tirx.PrimFunc, name: str, target: Target) -> str | None:
    """Return the rule that takes a function; None for the fallback. `compile` reports errors."""
    with _tvm_target(target):
        taken = schedule_first(_rules(target), func, name, target, remarks=[])
    rule = None if taken is None else rule_named(str(taken.attrs[RULE]))
    return None if rule is None or rule.last_resort else rule.name


def _space(func: tirx.PrimFunc, target: Target) -> tuple[str | None, Space]:
    """Return the choices of the schedule alone, and the rule that offers them; nothing if no rule
    has parameters for the kernel."""
    with _tvm_target(target):
        for rule in _rules(target):
            found = None if rule.space is None else rule.space(func, target)
            if found is not None:
                return rule.name, found
    return None, {}


def _rules(target: Target) -> Sequence[ScheduleRule]:
    if target.kind == "cuda":
        tvm_compat.import_tensor_intrinsics()
    return rules(target.device)


def _graph_params(func: tirx.PrimFunc) -> Params:
    """Return the parameters that the lowering put on the function's main block."""
    sch = s_tir.Schedule(func)
    if not isinstance(func.body, s_tir.SBlockRealize) or func.body.block.name_hint != "root":
        return {}
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        if params := knobs.params_of(sch, block):
            return params
    return {}


def _combinations(space: Space) -> list[Params]:
    """Return all combinations of a space, those closest to the rule's own values first."""
    names = list(space)
    combined = [
        {n: v for n, v in zip(names, values, strict=True) if v != space[n][0]}
        for values in itertools.product(*space.values())
    ]
    return sorted(combined, key=len)


def _spread(candidates: tuple[Candidate, ...]) -> Iterator[Candidate]:
    """Yield some distinct candidates of all lowerings, those with few changes first."""
    first, *rest = {c.id: c for c in candidates}.values()
    yield first
    yield from sorted(rest, key=lambda c: len(c.params))[: _MOST_CANDIDATES - 1]


def _named_main(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return func.with_attr("global_symbol", "main")


def read_function(file: Path) -> tirx.PrimFunc:
    """Read a kernel that `extract` wrote."""
    function: tirx.PrimFunc = tvm.ir.load_json(file.read_text(encoding="utf-8"))
    return function


def schedule_candidate(function: Path, candidate: Candidate, target: Target) -> tirx.PrimFunc:
    """Return the candidate's kernel."""
    return finished(*_taken(function, candidate, target))


def _taken(function: Path, candidate: Candidate, target: Target) -> tuple[str, s_tir.Schedule]:
    """Return a rule and its schedule: the replayed trace, or the first rule's with the parameters.

    The untuned kernel is what a compilation makes, so a rule that raises leaves it to the next; a
    candidate with parameters would then be another kernel, and has failed.
    """
    func, remarks = read_function(function), list[Text]()
    offered = [_AS_WRITTEN] if _STOCK in func.attrs else _rules(target)
    if candidate.trace is not None:
        offered = [replaying(candidate.trace)]
    elif candidate.params:
        func = knobs.with_params(func, candidate.params)
    with _tvm_target(target):
        taken = take(offered, func, "main", target, remarks)
    if taken is None or (remarks and candidate != Candidate()):
        given = json.dumps(candidate.params)
        why = clauses(remarks) or msg("no rule takes it with {params}", params=given)
        raise BuildError(msg("candidate {id}: {why}", id=candidate.id, why=why))
    return taken


def trace_of(function: Path, candidate: Candidate, target: Target) -> tuple[str, list[str]]:
    """Return the candidate's trace: as JSON, and as Python calls."""
    trace = _taken(function, candidate, target)[1].trace
    if trace is None:
        raise BuildError(msg("candidate {id}: its schedule leaves no trace", id=candidate.id))
    return traces.text(trace), [str(line) for line in trace.as_python()]


def build_candidate(function: Path, candidate: Candidate, target: Target, output: Path) -> None:
    """Compile a candidate into the shared library `output`, whose one function is `main`."""
    if (placed := unit_tasks.read(function)) is not None:
        unit_tasks.build(*placed, candidate, target, output)
        return
    try:
        _write_library(schedule_candidate(function, candidate, target), target, output)
    except BuildError:
        raise
    except Exception as e:  # TVM raises many types, also for illegal schedules
        raise BuildError(
            msg("candidate {id}: {reason}", id=candidate.id, reason=one_line(e))
        ) from e


def build_plain(function: Path, target: Target, output: Path) -> None:
    """Compile a kernel as it is written, unscheduled: slow, and the reference for candidates.

    Half precision becomes single: loops that sum in halves, one after the other, would be less
    exact than the candidates. `target` is a CPU, even if the candidates are for a GPU, which cannot
    run plain loops.
    """
    if (placed := unit_tasks.read(function)) is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        kernel_file.write(output, placed[0])
        return
    text = function.read_text(encoding="utf-8")
    for half in ("float16", "bfloat16"):
        text = text.replace(f'"{half}"', '"float32"')
    _write_library(tvm.ir.load_json(text), target, output)


def _write_library(func: tirx.PrimFunc, target: Target, output: Path) -> None:
    tvm_target, linker = _tvm_target(target), partial(link, linker_for(target))
    output.parent.mkdir(parents=True, exist_ok=True)
    # a CUDA compiler reads the architecture from the target
    with tvm_target, tvm.transform.PassContext(opt_level=3, config=ASYNCHRONOUS):
        built = tvm.tirx.build(tvm.IRModule({"main": func}), target=tvm_target)
        packer = machine_code.packer(tvm_target, [])
        built.export_library(str(output), fcompile=linker, fpack_imports=packer)


def arguments(function: Path) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Return shape and dtype of each argument of a kernel, results last."""
    if (placed := unit_tasks.read(function)) is not None:
        return kernel_file.arguments(placed[0])
    func = read_function(function)
    return tuple((tuple(int(d) for d in p.shape), str(p.dtype)) for p in func.params)
