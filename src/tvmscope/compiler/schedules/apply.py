"""Offers every kernel to the schedule rules in turn; a rule that raises leaves it to the next."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial

import tvm
from tvm import s_tir, tirx

from tvmscope.compiler.describe.kernel_ir import RULE, TRACE
from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.rule import ScheduleRule
from tvmscope.compiler.schedules import requests, rules
from tvmscope.compiler.schedules.bfloat16 import without_vector_constants
from tvmscope.compiler.tunable.knobs import workload_of
from tvmscope.core.diagnosis.remarks import rule_failed
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.core.tuning import Choice
from tvmscope.errors import UsageError, one_line
from tvmscope.messages import marked, msg
from tvmscope.runtime import tvm_compat


def schedule_module(context: Context) -> tvm.transform.Pass:
    """Return a pass that offers every kernel to the rules of the target's device."""
    if context.target.device == "cuda":
        tvm_compat.import_tensor_intrinsics()
    offered = _enabled(rules(context.target.device), context.options)
    return apply_schedules(offered, context.target, context.remarks, context.options.choices)


def _enabled(offered: Sequence[ScheduleRule], options: CompileOptions) -> list[ScheduleRule]:
    """Return the rules that are not disabled; later rules get the kernels of disabled ones."""
    left_out = options.overrides.get("disabled_rules", ())
    known = [rule.name for rule in offered]
    unknown = [name for name in left_out if name not in known]
    if unknown:
        raise UsageError(
            msg(
                "no schedule rule named {unknown}; rules: {known}",
                unknown=unknown,
                known=known,
            )
        )
    return [rule for rule in offered if rule.name not in left_out]


def apply_schedules(
    offered: Sequence[ScheduleRule],
    target: Target,
    remarks: list[str],
    choices: Mapping[str, Choice] | None = None,
) -> tvm.transform.Pass:
    """Return a pass that schedules kernels by a tuned trace, or by the first rule that takes them.

    Errors of rules are appended to `remarks`, for the session.
    """
    traces = {key: c.candidate.trace for key, c in (choices or {}).items() if c.candidate.trace}

    @tvm.transform.module_pass(opt_level=0, name="ApplySchedules")
    def transform(module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        done = {}
        for var, func in module.functions_items():
            if isinstance(func, tirx.PrimFunc) and not is_scheduled(func):
                found = traces.get(workload_of(func)) if traces else None
                first = [replaying(found)] if found else []
                scheduled = schedule_first([*first, *offered], func, var.name_hint, target, remarks)
                if scheduled is not None:
                    done[var] = scheduled
        for var, func in done.items():
            module.update_func(var, func)
        return module

    return transform


def replaying(trace: str) -> ScheduleRule:
    """Return a rule that replays a recorded trace."""
    return ScheduleRule(
        name="tuned",
        devices=("cpu", "cuda"),
        version=1,
        words=marked("A schedule that tuning found, replayed step by step."),
        schedule=partial(_replay, trace),
    )


def _replay(trace: str, func: tirx.PrimFunc, _: Target) -> s_tir.Schedule:
    sch = s_tir.Schedule(func)
    s_tir.schedule.Trace.apply_json_to_schedule(json.loads(trace), sch)
    return sch


def schedule_first(
    offered: Sequence[ScheduleRule],
    func: tirx.PrimFunc,
    name: str,
    target: Target,
    remarks: list[str],
) -> tirx.PrimFunc | None:
    """Return the function as the first matching rule schedules it; None if no rule takes it."""
    taken = take(offered, func, name, target, remarks)
    return None if taken is None else finished(*taken)


def take(
    offered: Sequence[ScheduleRule],
    func: tirx.PrimFunc,
    name: str,
    target: Target,
    remarks: list[str],
) -> tuple[str, s_tir.Schedule] | None:
    """Return the first rule that takes a function, and its schedule; errors become remarks."""
    for rule in offered:
        try:
            sch = rule.schedule(func, target)
        except Exception as e:  # a rule's bug costs one kernel its schedule, not the model
            remarks.append(rule_failed(rule.name, name, one_line(e)))
            continue
        if sch is not None:
            return rule.name, sch
    return None


def finished(rule: str, sch: s_tir.Schedule) -> tirx.PrimFunc:
    """Return the scheduled function with prefetched weights, its rule and its trace."""
    result = without_vector_constants(requests.insert(sch.mod["main"]))
    result = result.with_attr("tirx.is_scheduled", True)
    lines = list(sch.trace.as_python()) if sch.trace is not None else []
    return result.with_attr(RULE, rule).with_attr(TRACE, lines)


def is_scheduled(func: tirx.PrimFunc) -> bool:
    """Whether the pass that made the kernel has already scheduled it."""
    return bool(func.attrs and func.attrs.get("tirx.is_scheduled", False))
