"""Runs a model as it is after each pass, and shows the values inside it, for a bisection.

A prefix of the pipeline is finished by TVM's own required lowering and nothing else, so that its
results depend on the prefix alone. Every function here works on the model that `start` was given,
which stays in the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax import transform as rx

from tvmscope.compiler import frontends, pipeline
from tvmscope.compiler.describe import sources
from tvmscope.compiler.describe.kernel_ir import RULE
from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.passes import all_passes, required
from tvmscope.compiler.targets import to_tvm
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.errors import BuildError, one_line
from tvmscope.messages import msg
from tvmscope.runtime import tvm_compat
from tvmscope.storage.files import write_npz

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class State:
    """The module after some passes."""

    module: tvm.IRModule
    calls: list[sources.Call]


@dataclass(frozen=True)
class Study:
    """A model in a pipeline; state 0 is the imported module, state i the module after i passes."""

    prepared: Prepared
    imported: sources.Imported
    target: Target
    tvm_target: tvm.target.Target
    options: CompileOptions
    names: tuple[str, ...]
    passes: tuple[tvm.transform.Pass, ...]
    states: tuple[State, ...]

    def finishing(self, count: int) -> list[str]:
        """Return the required passes that `count` passes have not run yet, by TVM's names."""
        if count == len(self.passes):
            return []
        ran = {str(p.info.name) for p in self.passes[:count]}
        needed = set(required())
        if "FuseOps" in ran:
            needed.add("fuse-tir")  # a fused function cannot be called before it is a kernel
        context = Context(self.target, self.options)
        steps = (p.make(context) for p in all_passes() if p.name in needed and p.theirs)
        names = [str(p.info.name) for p in steps]
        return [name for name in names if name not in ran and hasattr(rx, name)]


@dataclass(frozen=True)
class Value:
    """A binding of the main function whose value can be examined."""

    index: int
    sources: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str


_study: Study | None = None


def start(
    prepared: Prepared, target: Target, options: CompileOptions, threads: int
) -> tuple[tuple[str, ...], tuple[bool, ...], tuple[tuple[str, ...], ...]]:
    """Import and lower a model; return the passes, which of them changed it, and its sources.

    A batch stays whole: between the passes that split and join it, a module takes other inputs.
    """
    global _study
    options = replace(options, disabled_passes=(*options.disabled_passes, "split-batch"))
    imported = frontends.import_model(prepared)
    tvm_target = tvm.target.Target(to_tvm(target), host=to_tvm(target))
    steps = pipeline.passes(Context(target, options), tvm_target)
    states = [State(imported.module, [])]
    pipeline.run(
        imported.module,
        target,
        tvm_target,
        options,
        watch=lambda module, calls: states.append(State(module, list(calls))),
    )
    tvm_compat.set_thread_count(tvm, threads)
    _study = Study(
        prepared,
        imported,
        target,
        tvm_target,
        options,
        tuple(step.name for step in steps),
        tuple(step.run for step in steps),
        tuple(states),
    )
    pairs = pairwise(state.module for state in states)
    changed = tuple(not tvm_ffi.structural_equal(a, b) for a, b in pairs)
    return _study.names, changed, imported.sources


def study() -> Study:
    """Return the model that `start` imported."""
    if _study is None:
        raise BuildError(msg("no model is under study in this process"))
    return _study


def run_prefix(count: int, outputs: str) -> None:
    """Run the model after `count` passes on its own inputs; write the outputs to a file."""
    _write_outputs(study().states[count].module, count, outputs)


def run_mixed(low: int, high: int, kernels: Sequence[str], outputs: str) -> None:
    """Run state `low` with the named kernels in the form that they have in state `high`."""
    here = study()
    module, after = here.states[low].module, here.states[high].module
    functions = dict(module.functions_items())
    for var in functions:
        if var.name_hint in kernels:
            functions[var] = after[var.name_hint]
    _write_outputs(tvm.IRModule(functions, attrs=module.attrs), low, outputs)


def changed_kernels(low: int, high: int) -> tuple[str, ...]:
    """Return the kernels that differ between two states, in the order of their first call.

    Empty if more than kernels differs: the main function, or the set of kernels.
    """
    before, after = study().states[low].module, study().states[high].module
    names = {v.name_hint for v in before.get_global_vars()}
    if names != {v.name_hint for v in after.get_global_vars()}:
        return ()
    differ = [n for n in names if not tvm_ffi.structural_equal(before[n], after[n])]
    if not all(isinstance(before[n], tirx.PrimFunc) for n in differ):
        return ()
    order = [call.kernel for call in sources.kernel_calls(before)]
    return tuple(sorted(differ, key=lambda n: order.index(n) if n in order else len(order)))


def kernel_facts(count: int, kernel: str) -> tuple[str | None, tuple[int, ...], int | None]:
    """Return a kernel's schedule rule, the sources it computes, and its first call's binding."""
    state = study().states[count]
    attributes = state.module[kernel].attrs
    calls = state.calls or sources.kernel_calls(state.module)
    found = dict.fromkeys(i for call in calls if call.kernel == kernel for i in call.sources)
    index = next(
        (
            i
            for i, b in enumerate(sources.bindings(state.module["main"]))
            if sources.kernel_of(b.value) == kernel
        ),
        None,
    )
    return (str(attributes[RULE]) if RULE in attributes else None), tuple(found), index


def _write_outputs(module: tvm.IRModule, count: int, outputs: str) -> None:
    found = run(module, study().finishing(count))
    names = [spec.name for spec in study().prepared.model.outputs]
    write_npz(Path(outputs), dict(zip(names, found, strict=True)))


def run(
    module: tvm.IRModule, finishing: Sequence[str], inputs: Sequence[Array] | None = None
) -> list[Array]:
    """Finish, build and run a module; by default on the model's own inputs."""
    here = study()
    if inputs is None:
        with np.load(here.prepared.inputs_path) as archive:
            inputs = [archive[spec.name] for spec in here.prepared.model.inputs]
    try:
        with here.tvm_target, tvm.transform.PassContext(opt_level=3):
            for name in finishing:
                module = getattr(rx, name)()(module)
            executable = relax.build(module, here.tvm_target, relax_pipeline=None)
        machine = relax.VirtualMachine(executable, tvm.cpu(0))
        result = machine["main"](*(tvm.runtime.tensor(np.asarray(a, order="C")) for a in inputs))
    except Exception as e:  # TVM raises many types; a module that cannot be run cannot be judged
        raise BuildError(msg("this prefix cannot run: {reason}", reason=one_line(e))) from e
    return [value.numpy() for value in _flat(result)]


def _flat(result: Any) -> Iterable[Any]:
    if hasattr(result, "numpy"):
        yield result
    else:
        for item in result:
            yield from _flat(item)


def values(count: int, file: str) -> tuple[Value, ...]:
    """Run the model after `count` passes and write the value of each tensor binding."""
    module = rx.ToNonDataflow()(study().states[count].module)
    main = module["main"]
    shown = [
        (i, b.var)
        for i, b in enumerate(sources.bindings(main))
        if isinstance(b.var.ty, relax.TensorType)
    ]
    kinds = [main.ret_ty, *(var.ty for _, var in shown)]
    body = relax.SeqExpr(list(main.body.blocks), relax.Tuple([main.body.body, *_vars(shown)]))
    wide = relax.Function(main.params, body, relax.TupleType(kinds), main.is_pure, main.attrs)
    module = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    module.update_func(module.get_global_var("main"), wide)
    found = run(rx.Normalize()(module), study().finishing(count))
    arrays = found[len(found) - len(shown) :]
    write_npz(Path(file), {str(i): array for (i, _), array in zip(shown, arrays, strict=True)})
    return tuple(
        Value(i, sources.labels(var), tuple(array.shape), str(array.dtype))
        for (i, var), array in zip(shown, arrays, strict=True)
    )


def _vars(shown: Sequence[tuple[int, relax.Var]]) -> list[relax.Var]:
    return [var for _, var in shown]


def cut(count: int, index: int, known: Iterable[int]) -> tuple[tvm.IRModule, list[int | str]]:
    """Return the module that computes one binding of a state from bindings with known values.

    Also return its parameters: bindings by their number, inputs of the model by their name.
    """
    module = rx.ToNonDataflow()(study().states[count].module)
    main, rows = module["main"], sources.bindings(module["main"])
    made = {b.var: i for i, b in enumerate(rows)}
    given: dict[relax.Var, int | str] = {}
    inside, waiting = set(), [index]
    names = [spec.name for spec in study().prepared.model.inputs]
    inputs: dict[relax.Var, int | str] = dict(zip(main.params, names, strict=True))
    known = set(known) - {index}
    while waiting:
        inside.add(current := waiting.pop())
        for var in relax.analysis.free_vars(rows[current].value):
            if var in inputs:
                given[var] = inputs[var]
            elif var in made and made[var] in known:
                given[var] = made[var]
            elif var in made and made[var] not in inside:
                waiting.append(made[var])
    result = rows[index].var
    block = relax.BindingBlock([rows[i] for i in sorted(inside)])
    function = relax.Function(
        list(given), relax.SeqExpr([block], result), result.ty, main.is_pure, main.attrs
    )
    small = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    small.update_func(small.get_global_var("main"), function)
    small = rx.DeadCodeElimination()(rx.ConvertToDataflow(1)(rx.Normalize()(small)))
    return small, list(given.values())


def apply(module: tvm.IRModule, low: int, high: int) -> tvm.IRModule:
    """Run the passes between two states on another module."""
    here = study()
    with here.tvm_target, tvm.transform.PassContext(opt_level=3):
        for step in here.passes[low:high]:
            module = step(tvm.IRModule(dict(module.functions_items()), attrs=module.attrs))
    return module


def transplant(module: tvm.IRModule, kernel: str, high: int) -> tvm.IRModule:
    """Return the module with one kernel in the form that it has in another state."""
    functions = dict(module.functions_items())
    for var in functions:
        if var.name_hint == kernel:
            functions[var] = study().states[high].module[kernel]
    return tvm.IRModule(functions, attrs=module.attrs)
