"""Reads the reader's own file: a TIR function, a schedule for it, and what numpy says, if it does.

The file is a Python program and is executed, in a worker process. It defines

    main          a TIR function (`@T.prim_func`), or `workload()` that returns one
    schedule      def schedule(sch, factor=16): ...; keyword arguments are the parameters
    reference     optional: def reference(*inputs) -> numpy array, the result

Without `reference` the result is held against that of the function as it was before the schedule.
"""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tvmscope.errors import UsageError, one_line
from tvmscope.learn.exercises import number
from tvmscope.learn.lesson import Array, Lesson, Parameter, Params, Step, Workload, body_of
from tvmscope.messages import msg

if TYPE_CHECKING:
    from tvm import s_tir, tirx


def read(file: Path) -> Lesson:
    """Return the file as a lesson of two steps: its function, unscheduled and then scheduled."""
    names = _executed(file)
    func = _function(names, file)
    schedule = names.get("schedule")
    if not callable(schedule):
        raise UsageError(msg("{file} defines no function schedule(sch, ...)", file=file))
    params = _parameters(schedule, file)

    def apply(sch: s_tir.Schedule, p: Params) -> None:
        returned = schedule(sch, **{name: p[name] for name in params})
        if returned is not None and returned is not sch:
            raise UsageError(msg("schedule() changes the schedule it is given; return nothing"))

    workload = Workload(
        name=file.stem,
        words=msg("{file}", file=file.name),
        make=lambda size: func,
        reference=_reference(names, func),
    )
    return Lesson(
        name=file.stem,
        title=msg("{file}", file=file.name),
        idea=msg("The reader's own function and schedule."),
        workload=workload,
        size=1,
        parameters=tuple(
            Parameter(name=name, words=msg("a parameter of schedule()"), default=value)
            for name, value in params.items()
        ),
        steps=(
            Step(name="plain", title=msg("As written")),
            Step(
                name="scheduled",
                title=msg("With the schedule"),
                apply=apply,
                params=params,
                source=body_of(schedule),
            ),
        ),
        exercise=number(msg("None."), lambda study: 0, lambda study, right: ""),
    )


def _executed(file: Path) -> Mapping[str, Any]:
    try:
        return runpy.run_path(str(file), run_name="tvmscope_lab")
    except Exception as e:  # the reader's program may raise any type
        reason = f"{type(e).__name__}: {one_line(e)}"
        raise UsageError(msg("{file} fails: {reason}", file=file, reason=reason)) from e


def _function(names: Mapping[str, Any], file: Path) -> tirx.PrimFunc:
    from tvm import tirx

    func = names.get("main")
    if func is None and callable(names.get("workload")):
        func = names["workload"]()
    if not isinstance(func, tirx.PrimFunc):
        raise UsageError(
            msg("{file} has no TIR function: define main, or workload() that returns it", file=file)
        )
    func = func.with_attr("global_symbol", "main")
    assert isinstance(func, tirx.PrimFunc)
    return func


def _parameters(schedule: Callable[..., Any], file: Path) -> dict[str, int]:
    _first, *others = inspect.signature(schedule).parameters.values()
    found = {}
    for p in others:
        if type(p.default) is not int:
            raise UsageError(
                msg(
                    "{file}: the parameter {name} of schedule() needs a whole number as its "
                    "default",
                    file=file,
                    name=p.name,
                )
            )
        found[p.name] = p.default
    return found


def _reference(names: Mapping[str, Any], func: tirx.PrimFunc) -> Callable[[Sequence[Array]], Array]:
    own = names.get("reference")
    if callable(own):
        return lambda inputs: np.asarray(own(*inputs))

    def as_written(inputs: Sequence[Array]) -> Array:
        import tvm

        module = tvm.compile(tvm.IRModule({"main": func}), target=tvm.target.Target("llvm")).mod
        result = func.params[-1]
        out = np.zeros([int(d) for d in result.shape], str(result.dtype))
        tensors = [tvm.runtime.tensor(array) for array in (*inputs, out)]
        module["main"](*tensors)
        found: Array = tensors[-1].numpy()
        return found

    return as_written
