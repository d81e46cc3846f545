"""Runs a pipeline: our passes, TVM's own, or a user's, from an imported module to the VM's.

The passes and their order are in `passes/`. A configuration switches single passes off; a user's
own function replaces the list.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tvm

from tvmscope.compiler import schedules
from tvmscope.compiler.describe import edges, kernel_ir, sources
from tvmscope.compiler.describe.pass_dump import PassDump, Ran
from tvmscope.compiler.manifest.context import Context
from tvmscope.compiler.manifest.pass_ import Pass
from tvmscope.compiler.passes import all_passes, ordered, required
from tvmscope.compiler.schedules.threadless import refuse_threadless
from tvmscope.compiler.user_pipeline import user_passes
from tvmscope.core.options import CompileOptions
from tvmscope.core.profile import KernelIR
from tvmscope.core.target import Target
from tvmscope.cuda.cubins.compiled_kernel import CompiledKernel
from tvmscope.cuda.library.call import LibraryCall
from tvmscope.errors import PassError, UsageError, one_line
from tvmscope.messages import msg
from tvmscope.plugins import Plugin, PluginFailure

PIPELINES = ("tvm", "tvm-tuned", "tvmscope")
"""The pipelines that are read from the list of passes."""


@dataclass(frozen=True)
class Step:
    """A pass that is ready to run."""

    phase: str
    name: str
    run: tvm.transform.Pass
    tracks: str = "bindings"
    """As in `Pass`; a user's own passes keep the names on the bindings."""
    words: str = ""
    """As in `Pass`; a user's own pass has no description."""


@dataclass(frozen=True)
class Lowered:
    """A module that is ready for the VM, and what is known about its lowering."""

    module: tvm.IRModule
    times_s: dict[str, float]
    calls: list[sources.Call]
    remarks: tuple[str, ...]
    kernels: tuple[KernelIR, ...] = ()
    generated: dict[str, CompiledKernel] = field(default_factory=dict)
    """CUDA kernels, by the packed function that launches each."""
    library_calls: dict[str, LibraryCall] = field(default_factory=dict)
    """Units that a library computes, likewise."""


def select(options: CompileOptions, target: Target) -> list[Pass]:
    """Select the passes that `options` require on `target`."""
    known = all_passes()
    names = {each.name for each in known}
    unknown = [name for name in options.disabled_passes if name not in names]
    if unknown:
        raise UsageError(
            msg(
                "no pass named {unknown}; passes: {names}",
                unknown=unknown,
                names=sorted(names),
            )
        )
    needed = [name for name in options.disabled_passes if name in required()]
    if needed:
        raise UsageError(msg("pass {needed} cannot be disabled: nothing would run", needed=needed))
    return [
        each
        for each in known
        if target.device in each.devices_of(options.pipeline)
        and each.when(options)
        and each.name not in options.disabled_passes
    ]


def plugins(options: CompileOptions, target: Target) -> tuple[Plugin, ...]:
    """Return the plug-ins in use: the passes that run, the rules that are offered kernels."""
    if options.pipeline != "tvmscope":
        return ()
    brought = ordered().plugins
    ran = [brought[each.name] for each in select(options, target) if each.name in brought]
    left_out = options.overrides.get("disabled_rules", ())
    offered = schedules.ordered(target.device).plugins
    return (*ran, *(plugin for name, plugin in offered.items() if name not in left_out))


def passes(
    context: Context,
    tvm_target: tvm.target.Target,
    since: str | None = None,
    until: str | None = None,
) -> list[Step]:
    """Return the chosen pipeline, or some phases of ours."""
    options = context.options
    if options.pipeline in PIPELINES:
        chosen: Iterator[Pass] = itertools.takewhile(
            lambda p: p.phase != until, select(options, context.target)
        )
        if since is not None:
            chosen = itertools.dropwhile(lambda p: p.phase != since, chosen)
        return [Step(p.phase, p.name, p.make(context), p.tracks, p.words) for p in chosen]
    user = user_passes(options.pipeline, tvm_target)
    return [Step("user", f"{i:02d}-{p.info.name}", p) for i, p in enumerate(user)]


def run(
    module: tvm.IRModule,
    target: Target,
    tvm_target: tvm.target.Target,
    options: CompileOptions,
    *,
    since: str | None = None,
    until: str | None = None,
    watch: Callable[[tvm.IRModule, list[sources.Call]], None] | None = None,
) -> Lowered:
    """Run the chosen pipeline and keep track of time and of where kernels come from.

    `until` names a phase before which it ends: `schedule` leaves the kernels as they are written.
    `since` names the phase where it begins, with a module that ended there.
    `watch` is shown the module after each pass, with the kernel calls as far as they are known.
    """
    context = Context(target, options)
    if options.pipeline == "tvmscope":
        context.remarks += [
            msg("plug-in left out: {failure}", failure=str(failure))
            for failure in _failures(target)
        ]
    steps = passes(context, tvm_target, since, until)
    times: dict[str, float] = {}
    calls: list[sources.Call] = []
    reached: dict[str, tvm.IRModule] = {}
    dump = _dump(module, options)
    config = {"relax.backend.use_cuda_graph": options.graph}
    with tvm_target, tvm.transform.PassContext(opt_level=3, config=config):
        for index, step in enumerate(steps):
            reached.setdefault(step.phase, module)
            start = time.perf_counter()
            # Passes written in Python may change the module they are given: hand over a copy.
            copy = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
            after = _apply(step, copy, list(times))
            times[step.name] = time.perf_counter() - start
            if dump is not None:
                ran = Ran(step.phase, step.name, step.words, times[step.name])
                dump.passed(ran, module, after, ends_phase=_phase_ends(steps, index))
            module, calls = _track(step, module, after, calls)
            if watch is not None:
                watch(module, calls)
    if until is not None:
        return Lowered(module, times, calls, tuple(context.remarks))
    scheduled = reached.get("lower", module)  # a user's own pipeline has no phases
    if target.device == "cuda":
        refuse_threadless(scheduled)
    plain = reached.get("schedule", scheduled)
    kernels = kernel_ir.describe(plain, scheduled, context.remarks, options.choices)
    return Lowered(
        module=module,
        times_s=times,
        calls=calls,
        remarks=tuple(context.remarks),
        kernels=kernels,
        generated=context.kernels,
        library_calls=context.library_calls,
    )


def _failures(target: Target) -> tuple[PluginFailure, ...]:
    """Return the parts of other packages that cannot be used."""
    return (*ordered().failures, *schedules.ordered(target.device).failures)


def _apply(step: Step, module: tvm.IRModule, before: Sequence[str]) -> tvm.IRModule:
    try:
        return step.run(module)
    except Exception as e:  # TVM raises many types; the pass's name is what helps
        raise PassError(
            msg(
                "pass '{name}' failed: {reason}; passes before it: {before}; try --disable-pass "
                "{name}",
                name=step.name,
                reason=one_line(e),
                before=before or msg("none"),
            )
        ) from e


def _track(
    step: Step, before: tvm.IRModule, after: tvm.IRModule, calls: list[sources.Call]
) -> tuple[tvm.IRModule, list[sources.Call]]:
    """Carry source names over a pass; from fusion on, follow kernels instead of bindings."""
    if step.tracks == "fusion":
        return after, sources.trace_fusion(before, after)
    if step.tracks == "order" and calls:
        return after, sources.reordered(calls, before, after)
    if step.tracks == "calls":  # if no fusion ran, the kernels are the calls before this pass
        return after, edges.placed(calls or sources.kernel_calls(before), before)
    if calls:
        return after, calls
    return sources.relabel(after, sources.present(before)), calls


def _phase_ends(steps: Sequence[Step], index: int) -> bool:
    return index + 1 == len(steps) or steps[index + 1].phase != steps[index].phase


def _dump(module: tvm.IRModule, options: CompileOptions) -> PassDump | None:
    if options.dump_ir is None:
        return None
    dump = PassDump(Path(options.dump_ir), each_pass=options.dump_each_pass)
    dump.begin(module)
    return dump
