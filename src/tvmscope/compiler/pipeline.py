"""The one ordered list of passes, from an imported module to one that is ready for the VM.

Two variants are read from it: `tvm`, exactly the passes that `tvm.compile` runs for the device,
and `tvmscope`, ours. A configuration switches single passes off; a user's own function replaces
the list.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm.relax import backend
from tvm.relax import transform as rx
from tvm.s_tir import dlight as dl

from tvmscope.compiler.describe import kernel_ir, sources
from tvmscope.compiler.passes.block_layout import block_layout
from tvmscope.compiler.passes.collapse_views import collapse_views
from tvmscope.compiler.passes.compile_units import compile_units
from tvmscope.compiler.passes.fast_math import fast_math
from tvmscope.compiler.passes.fast_scatter import drop_empty_scatters, fast_scatter
from tvmscope.compiler.passes.fast_select import fast_select
from tvmscope.compiler.passes.fold_numpy import fold_numpy
from tvmscope.compiler.passes.fold_pads import fold_pads
from tvmscope.compiler.passes.fuse_attention import fuse_attention
from tvmscope.compiler.passes.narrow import narrow
from tvmscope.compiler.passes.nhwc import nhwc
from tvmscope.compiler.passes.pack_matmul import pack_matmul
from tvmscope.compiler.passes.place_units import place_units
from tvmscope.compiler.passes.row_kernels import row_kernels
from tvmscope.compiler.passes.scalar_operands import scalar_operands
from tvmscope.compiler.passes.sink_reshapes import sink_reshapes
from tvmscope.compiler.passes.split_batch import join_batch, split_batch
from tvmscope.compiler.passes.subpixel_transposed import subpixel_transposed
from tvmscope.compiler.passes.wide_sums import wide_sums
from tvmscope.compiler.passes.write_in_place import write_in_place
from tvmscope.compiler.schedules import cpu, cuda
from tvmscope.compiler.schedules.apply import Rule, apply_schedules
from tvmscope.compiler.tunable.knobs import Knobs
from tvmscope.compiler.units.choose import Chooser, unavailable
from tvmscope.compiler.user_pipeline import user_passes
from tvmscope.core.options import CompileOptions
from tvmscope.core.profile import KernelIR
from tvmscope.core.target import Target
from tvmscope.cuda.kernel_compiler import CompiledKernel
from tvmscope.errors import PassError, UsageError, one_line
from tvmscope.runtime import tvm_compat

_BOTH = frozenset({"cpu", "cuda"})
_CPU = frozenset({"cpu"})
_CUDA = frozenset({"cuda"})
_NONE: frozenset[str] = frozenset()


@dataclass
class Context:
    """What a pass may depend on, and where it leaves remarks."""

    target: Target
    options: CompileOptions
    remarks: list[str] = field(default_factory=list)
    kernels: dict[str, CompiledKernel] = field(default_factory=dict)
    """Generated CUDA kernels, by the packed function that launches each."""

    @property
    def knobs(self) -> Knobs:
        """The parameters of kernels: those of records, or one set for all."""
        return Knobs(self.options.choices, self.options.overrides.get("params", {}))


@dataclass(frozen=True)
class Step:
    """A named pass: on which devices each variant runs it."""

    phase: str
    name: str
    make: Callable[[Context], tvm.transform.Pass]
    tvm: frozenset[str] = _NONE
    ours: frozenset[str] = _BOTH
    when: Callable[[CompileOptions], bool] = lambda options: True


def _dlight(_: Context) -> tvm.transform.Pass:
    """The wheel's own GPU schedules, in the wheel's own order."""
    tvm_compat.import_tensor_intrinsics()
    rules = (dl.gpu.Matmul, dl.gpu.GEMV, dl.gpu.Reduction, dl.gpu.GeneralReduction, dl.gpu.Fallback)
    return dl.ApplyDefaultSchedule(*(rule() for rule in rules))


def _block_layout(context: Context) -> tvm.transform.Pass:
    winograd = bool(context.options.overrides.get("winograd", True))
    return block_layout(context.target, winograd=winograd, knobs=context.knobs)


def _cpu_rules(context: Context) -> tvm.transform.Pass:
    rules = _enabled(cpu.RULES, context)
    return apply_schedules(rules, context.target, context.remarks, context.options.choices)


def _gpu_rules(context: Context) -> tvm.transform.Pass:
    tvm_compat.import_tensor_intrinsics()
    rules = _enabled(cuda.RULES, context)
    return apply_schedules(rules, context.target, context.remarks, context.options.choices)


def _place_units(context: Context) -> tvm.transform.Pass:
    if reason := unavailable(context.target):
        context.remarks.append(reason)
        return tvm.transform.Sequential([])
    return place_units(Chooser(context.target, context.options.choices))


def _narrow(context: Context) -> tvm.transform.Pass:
    return tvm.transform.Sequential([narrow(context.options.precision), fold_numpy()])


def _enabled(rules: Sequence[Rule], context: Context) -> list[Rule]:
    """Without the rules that the options leave out; what they would take goes to the next one."""
    left_out = context.options.overrides.get("disabled_rules", ())
    known = [name for name, _ in rules]
    unknown = [name for name in left_out if name not in known]
    if unknown:
        raise UsageError(f"no schedule rule named {', '.join(unknown)}; rules: {', '.join(known)}")
    return [rule for rule in rules if rule[0] not in left_out]


STEPS: tuple[Step, ...] = (
    Step("graph", "fold-batch-norm", lambda c: rx.FoldBatchnormToConv2D()),
    Step("graph", "decompose", lambda c: rx.DecomposeOpsForInference()),
    Step("graph", "canonicalize", lambda c: rx.CanonicalizeBindings()),
    Step("graph", "fold-arithmetic", lambda c: fold_numpy()),
    Step("graph", "drop-empty-scatters", lambda c: drop_empty_scatters()),
    Step("graph", "fold-graph-constants", lambda c: rx.FoldConstant()),
    Step("graph", "fold-pads", lambda c: fold_pads()),
    Step("precision", "scalar-operands", lambda c: scalar_operands(),
         when=lambda o: o.precision != "float32"),
    Step("precision", "mixed-precision",
         lambda c: rx.ToMixedPrecision(out_dtype=c.options.precision), tvm=_BOTH,
         when=lambda o: o.precision != "float32"),
    Step("precision", "wide-sums", lambda c: wide_sums(c.target),
         when=lambda o: o.precision != "float32"),
    Step("precision", "fold-casts", lambda c: fold_numpy(),
         when=lambda o: o.precision != "float32"),
    # After the precision: it gives a shared scalar a variable, which ToMixedPrecision rejects.
    Step("tidy", "common-subexpressions", lambda c: rx.EliminateCommonSubexpr()),
    Step("tidy", "dead-code", lambda c: rx.DeadCodeElimination()),
    Step("tidy", "sink-reshapes", lambda c: sink_reshapes()),
    Step("tidy", "split-batch", lambda c: split_batch(c.target), ours=_CPU,
         when=lambda o: "join-batch" not in o.disabled_passes),
    # After the precision, which rejects kernels; before what makes kernels of its operands.
    Step("layout", "fast-scatter", lambda c: fast_scatter(c.target)),
    Step("layout", "fast-select", lambda c: fast_select(c.target)),
    Step("layout", "subpixel-transposed", lambda c: subpixel_transposed(), ours=_CPU),
    Step("layout", "fuse-attention", lambda c: fuse_attention(c.target), ours=_CPU),
    Step("layout", "pack-matmul", lambda c: pack_matmul(c.target, c.knobs), ours=_CPU),
    Step("layout", "block-layout", _block_layout, ours=_CPU),
    Step("layout", "row-kernels", lambda c: row_kernels(), ours=_CPU),
    Step("layout", "fast-math", lambda c: fast_math(), ours=_CPU),
    Step("layout", "nhwc", lambda c: nhwc(), ours=_CUDA),
    Step("layout", "narrow", _narrow, ours=_CUDA, when=lambda o: o.precision != "float32"),
    Step("layout", "collapse-views", lambda c: collapse_views(), ours=_CUDA),
    Step("layout", "place-units", _place_units, ours=_CUDA),
    # Kernels leave their results narrow and in an order of their own: once more.
    Step("layout", "narrow-results", _narrow, ours=_CUDA,
         when=lambda o: o.precision != "float32"),
    Step("layout", "collapse-results", lambda c: collapse_views(), ours=_CUDA),
    Step("dispatch", "dispatch-sampling", lambda c: backend.DispatchSampling(), tvm=_BOTH),
    Step("dispatch", "dispatch-sort-scan", lambda c: backend.DispatchSortScan(), tvm=_BOTH),
    Step("legalize", "legalize", lambda c: rx.LegalizeOps(), tvm=_BOTH),
    Step("fuse", "annotate-patterns", lambda c: rx.AnnotateTIROpPattern(), tvm=_CUDA),
    Step("fuse", "fold-constants", lambda c: rx.FoldConstant(), tvm=_CUDA),
    Step("fuse", "fuse-ops", lambda c: rx.FuseOps(), tvm=_CUDA),
    Step("fuse", "fuse-tir", lambda c: rx.FuseTIR(), tvm=_CUDA),
    Step("fuse", "write-in-place", lambda c: write_in_place(), ours=_CPU),
    Step("fuse", "join-batch", lambda c: join_batch(), ours=_CPU),
    Step("schedule", "dlight", _dlight, tvm=_CUDA, ours=_NONE),
    Step("schedule", "cpu-rules", _cpu_rules, ours=_CPU),
    Step("schedule", "compile-units", lambda c: compile_units(c.target.arch, c.kernels),
         ours=_CUDA),
    Step("schedule", "gpu-rules", _gpu_rules, ours=_CUDA),
    Step("lower", "reshape-views", lambda c: rx.RewriteDataflowReshape(), tvm=_BOTH),
    Step("lower", "end-dataflow", lambda c: rx.ToNonDataflow(), tvm=_BOTH),
    Step("lower", "drop-purity", lambda c: rx.RemovePurityChecking(), tvm=_BOTH),
    Step("lower", "destination-passing", lambda c: rx.CallTIRRewrite(), tvm=_BOTH),
    Step("memory", "plan-memory", lambda c: rx.StaticPlanBlockMemory(), tvm=_BOTH),
    Step("memory", "cuda-graph", lambda c: rx.RewriteCUDAGraph(), tvm=_BOTH),
    Step("memory", "lower-alloc", lambda c: rx.LowerAllocTensor(), tvm=_BOTH),
    Step("memory", "kill-after-use", lambda c: rx.KillAfterLastUse(), tvm=_BOTH),
    Step("finish", "lower-builtins", lambda c: rx.LowerRuntimeBuiltin(), tvm=_BOTH),
    Step("finish", "prim-values", lambda c: rx.ComputePrimValue(), tvm=_BOTH),
    Step("finish", "lower-shapes", lambda c: rx.VMShapeLower(), tvm=_BOTH),
    Step("finish", "global-symbols", lambda c: rx.AttachGlobalSymbol(), tvm=_BOTH),
)  # fmt: skip

REQUIRED = frozenset(
    step.name for step in STEPS if step.phase in ("legalize", "lower", "finish")
) | {"lower-alloc"}
"""Without these the VM cannot run the module at all."""


@dataclass(frozen=True)
class Lowered:
    """A module that is ready for the VM, and what happened on the way."""

    module: tvm.IRModule
    times_s: dict[str, float]
    calls: list[sources.Call]
    remarks: tuple[str, ...]
    kernels: tuple[KernelIR, ...] = ()
    generated: dict[str, CompiledKernel] = field(default_factory=dict)
    """CUDA kernels, by the packed function that launches each."""


def select(options: CompileOptions, target: Target) -> list[Step]:
    """The steps that `options` ask for on `target`."""
    names = {step.name for step in STEPS}
    unknown = [name for name in options.disabled_passes if name not in names]
    if unknown:
        raise UsageError(f"no pass named {', '.join(unknown)}; passes: {', '.join(sorted(names))}")
    needed = [name for name in options.disabled_passes if name in REQUIRED]
    if needed:
        raise UsageError(f"pass {', '.join(needed)} cannot be disabled: nothing would run")
    return [
        step
        for step in STEPS
        if target.device in (step.tvm if options.pipeline == "tvm" else step.ours)
        and step.when(options)
        and step.name not in options.disabled_passes
    ]


def passes(
    context: Context, tvm_target: Any, since: str | None = None, until: str | None = None
) -> list[tuple[str, str, tvm.transform.Pass]]:
    """The chosen pipeline, or some phases of ours: phase, name and pass of each step."""
    options = context.options
    if options.pipeline in ("tvm", "tvmscope"):
        steps = itertools.takewhile(lambda s: s.phase != until, select(options, context.target))
        if since is not None:
            steps = itertools.dropwhile(lambda s: s.phase != since, steps)
        return [(s.phase, s.name, s.make(context)) for s in steps]
    user = user_passes(options.pipeline, tvm_target)
    return [("user", f"{i:02d}-{_pass_name(p)}", p) for i, p in enumerate(user)]


def run(
    module: tvm.IRModule,
    target: Target,
    tvm_target: Any,
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
    named = passes(context, tvm_target, since, until)
    times: dict[str, float] = {}
    calls: list[sources.Call] = []
    reached: dict[str, tvm.IRModule] = {}
    config = {"relax.backend.use_cuda_graph": options.graph}
    with tvm_target, tvm.transform.PassContext(opt_level=3, config=config):
        for index, (phase, name, step) in enumerate(named):
            reached.setdefault(phase, module)
            start = time.perf_counter()
            # Passes written in Python may change the module they are given: hand over a copy.
            copy = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
            after = _apply(step, name, copy, list(times))
            times[name] = time.perf_counter() - start
            module, calls = _track(name, module, after, calls)
            if watch is not None:
                watch(module, calls)
            if options.dump_ir and _phase_ends(named, index):
                _dump(module, Path(options.dump_ir), len(times), phase)
    if until is not None:
        return Lowered(module, times, calls, tuple(context.remarks))
    scheduled = reached.get("lower", module)  # a user's own pipeline has no phases
    plain = reached.get("schedule", scheduled)
    kernels = kernel_ir.describe(plain, scheduled, context.remarks, options.choices)
    return Lowered(module, times, calls, tuple(context.remarks), kernels, context.kernels)


def _apply(
    step: tvm.transform.Pass, name: str, module: tvm.IRModule, before: Sequence[str]
) -> tvm.IRModule:
    try:
        return step(module)
    except Exception as e:  # TVM raises many types; the pass's name is what helps
        raise PassError(
            f"pass '{name}' failed: {one_line(e)}; passes before it: {', '.join(before) or 'none'}"
            f"; try --disable-pass {name}"
        ) from e


def _track(
    name: str, before: tvm.IRModule, after: tvm.IRModule, calls: list[sources.Call]
) -> tuple[tvm.IRModule, list[sources.Call]]:
    """Carry source names over a pass; from fusion on, follow kernels instead of bindings."""
    if name == "fuse-ops":
        return after, sources.trace_fusion(before, after)
    if calls:
        return after, calls
    if name == "destination-passing":  # no fusion ran: the kernels are the calls before this pass
        return after, sources.kernel_calls(before)
    return sources.relabel(after, sources.present(before)), calls


def _phase_ends(named: Sequence[tuple[str, str, Any]], index: int) -> bool:
    return index + 1 == len(named) or named[index + 1][0] != named[index][0]


def _dump(module: tvm.IRModule, folder: Path, index: int, phase: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{index:02d}-{phase}.py").write_text(module.script(), encoding="utf-8")


def _pass_name(step: tvm.transform.Pass) -> str:
    return str(step.info.name)
