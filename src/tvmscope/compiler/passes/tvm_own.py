"""TVM's own passes: those of its default pipelines, and a few more that ours runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvmscope.compiler.manifest.context import Context, in_reduced_precision
from tvmscope.compiler.manifest.pass_ import EVERYWHERE, NOWHERE, Pass
from tvmscope.compiler.manifest.switch import Switch
from tvmscope.messages import marked

if TYPE_CHECKING:
    import tvm

    Make = Callable[[Context], tvm.transform.Pass]


def _relax(name: str) -> Make:
    """Make a pass of `tvm.relax.transform` that takes no arguments."""

    def make(_: Context) -> tvm.transform.Pass:
        from tvm.relax import transform

        made: tvm.transform.Pass = getattr(transform, name)()
        return made

    return make


def _dispatch(name: str) -> Make:
    """Make a pass of `tvm.relax.backend`."""

    def make(_: Context) -> tvm.transform.Pass:
        from tvm.relax import backend

        made: tvm.transform.Pass = getattr(backend, name)()
        return made

    return make


def _folded_twice(_: Context) -> tvm.transform.Pass:
    """Fold constants, then what is computed from the fields of folded tuples, such as the parts of
    one weight for queries, keys and values."""
    import tvm
    from tvm import relax

    rx = relax.transform
    steps = [rx.FoldConstant(), rx.CanonicalizeBindings(), rx.FoldConstant()]
    return tvm.transform.Sequential(steps, name="FoldGraphConstants")


def _mixed_precision(context: Context) -> tvm.transform.Pass:
    from tvm.relax.transform import ToMixedPrecision

    from tvmscope.compiler.rewrites.framework_calls import around_framework_calls
    from tvmscope.compiler.rewrites.half_types import set_policies, to_bfloat16

    set_policies(ours=context.options.pipeline == "tvmscope")
    if context.options.precision.dtype == "bfloat16":  # TVM's pass makes float16 alone
        return around_framework_calls(to_bfloat16(ToMixedPrecision(out_dtype="float16")))
    return around_framework_calls(ToMixedPrecision(out_dtype=context.options.precision.dtype))


def _legalize(context: Context) -> tvm.transform.Pass:
    """TVM's pipelines take TVM's kernels; ours has its own of some operators."""
    from tvm.relax import transform

    if context.options.pipeline != "tvmscope":
        return transform.LegalizeOps()
    from tvmscope.compiler.kernels import extremes

    extremes.register()
    return transform.LegalizeOps(extremes.LEGALIZED)


def _dlight(_: Context) -> tvm.transform.Pass:
    """Apply the wheel's own GPU schedules, in the wheel's own order."""
    from tvm.s_tir import dlight

    from tvmscope.runtime import tvm_compat

    tvm_compat.import_tensor_intrinsics()
    gpu = dlight.gpu
    rules = (gpu.Matmul, gpu.GEMV, gpu.Reduction, gpu.GeneralReduction, gpu.Fallback)
    return dlight.ApplyDefaultSchedule(*(rule() for rule in rules))


# ---- graph, precision, tidy: not in TVM's default pipelines, except for mixed-precision ----

FOLD_BATCH_NORM = Pass(
    name="fold-batch-norm",
    phase="graph",
    words=marked("Folds batch norms into the weights of the convolutions before them."),
    make=_relax("FoldBatchnormToConv2D"),
    switches=(Switch(name="fold-batch-norm"),),
)
DECOMPOSE = Pass(
    name="decompose",
    phase="graph",
    words=marked("Replaces operators that matter only in training by their inference form."),
    make=_relax("DecomposeOpsForInference"),
    searched=EVERYWHERE,
)
CANONICALIZE = Pass(
    name="canonicalize",
    phase="graph",
    words=marked("Removes bindings that only rename a value."),
    make=_relax("CanonicalizeBindings"),
    searched=EVERYWHERE,
)
FOLD_GRAPH_CONSTANTS = Pass(
    name="fold-graph-constants",
    phase="graph",
    words=marked("Computes operators of constants once, before the layout is chosen."),
    make=_folded_twice,
    switches=(Switch(name="fold-constants"),),
)
MIXED_PRECISION = Pass(
    name="mixed-precision",
    phase="precision",
    words=marked("Computes convolutions and matrix products in the precision that was asked for."),
    make=_mixed_precision,
    theirs=EVERYWHERE,
    when=in_reduced_precision,
)
COMMON_SUBEXPRESSIONS = Pass(
    name="common-subexpressions",
    phase="tidy",
    words=marked("Computes common subexpressions only once."),
    make=_relax("EliminateCommonSubexpr"),
    switches=(Switch(name="common-subexpressions"),),
)
DEAD_CODE = Pass(
    name="dead-code",
    phase="tidy",
    words=marked("Removes what no output depends on."),
    make=_relax("DeadCodeElimination"),
)

# ---- dispatch, legalize, fuse, schedule -------------------------------------------------------

DISPATCH_SAMPLING = Pass(
    name="dispatch-sampling",
    phase="dispatch",
    words=marked("Dispatches sampling operators to the device's own kernels."),
    make=_dispatch("DispatchSampling"),
    theirs=EVERYWHERE,
)
DISPATCH_SORT_SCAN = Pass(
    name="dispatch-sort-scan",
    phase="dispatch",
    words=marked("Dispatches the remaining sorts and scans to the device's own kernels."),
    make=_dispatch("DispatchSortScan"),
    theirs=EVERYWHERE,
)
LEGALIZE = Pass(
    name="legalize",
    phase="legalize",
    words=marked("Turns operators into kernels."),
    make=_legalize,
    theirs=EVERYWHERE,
    required=True,
)
ANNOTATE_PATTERNS = Pass(
    name="annotate-patterns",
    phase="fuse",
    words=marked("Annotates each kernel with how it can be fused."),
    make=_relax("AnnotateTIROpPattern"),
    theirs=("cuda",),
    searched=EVERYWHERE,
    finding="unfused-chain",
)
FOLD_CONSTANTS = Pass(
    name="fold-constants",
    phase="fuse",
    words=marked("Computes kernels of constants once."),
    make=_relax("FoldConstant"),
    theirs=("cuda",),
    searched=EVERYWHERE,
    switches=(Switch(name="fold-constants"),),
)
FUSE_OPS = Pass(
    name="fuse-ops",
    phase="fuse",
    words=marked("Groups kernels that can be computed together."),
    make=_relax("FuseOps"),
    theirs=("cuda",),
    searched=EVERYWHERE,
    switches=(Switch(name="fusion"),),
    tracks="fusion",
    finding="unfused-chain",
)
FUSE_TIR = Pass(
    name="fuse-tir",
    phase="fuse",
    words=marked("Merges each group into one kernel."),
    make=_relax("FuseTIR"),
    theirs=("cuda",),
    searched=EVERYWHERE,
    switches=(Switch(name="fusion"),),
    finding="unfused-chain",
)
DLIGHT = Pass(
    name="dlight",
    phase="schedule",
    words=marked("Schedules every kernel with DLight's rules for GPUs."),
    make=_dlight,
    ours=NOWHERE,
    theirs=("cuda",),
    finding="no-schedule",
)

# ---- lower, memory, finish --------------------------------------------------------------------

RESHAPE_VIEWS = Pass(
    name="reshape-views",
    phase="lower",
    words=marked("Turns reshapes into views of the same memory."),
    make=_relax("RewriteDataflowReshape"),
    theirs=EVERYWHERE,
    required=True,
)
END_DATAFLOW = Pass(
    name="end-dataflow",
    phase="lower",
    words=marked("Turns dataflow blocks into plain bindings."),
    make=_relax("ToNonDataflow"),
    theirs=EVERYWHERE,
    required=True,
)
DROP_PURITY = Pass(
    name="drop-purity",
    phase="lower",
    words=marked("Allows calls that write into memory."),
    make=_relax("RemovePurityChecking"),
    theirs=EVERYWHERE,
    required=True,
)
DESTINATION_PASSING = Pass(
    name="destination-passing",
    phase="lower",
    words=marked("Passes every kernel the memory that it writes its result to."),
    make=_relax("CallTIRRewrite"),
    theirs=EVERYWHERE,
    required=True,
    tracks="calls",
)
PLAN_MEMORY = Pass(
    name="plan-memory",
    phase="memory",
    words=marked("Lets results whose lifetimes do not overlap share memory."),
    make=_relax("StaticPlanBlockMemory"),
    theirs=EVERYWHERE,
)
CUDA_GRAPH = Pass(
    name="cuda-graph",
    phase="memory",
    words=marked("Records the launches of a run as a CUDA graph, where that was asked for."),
    make=_relax("RewriteCUDAGraph"),
    theirs=EVERYWHERE,
)
LOWER_ALLOC = Pass(
    name="lower-alloc",
    phase="memory",
    words=marked("Lowers tensor allocations to memory allocations."),
    make=_relax("LowerAllocTensor"),
    theirs=EVERYWHERE,
    required=True,
)
KILL_AFTER_USE = Pass(
    name="kill-after-use",
    phase="memory",
    words=marked("Frees a value after its last use."),
    make=_relax("KillAfterLastUse"),
    theirs=EVERYWHERE,
)
LOWER_BUILTINS = Pass(
    name="lower-builtins",
    phase="finish",
    words=marked("Turns built-in operators into calls of the virtual machine."),
    make=_relax("LowerRuntimeBuiltin"),
    theirs=EVERYWHERE,
    required=True,
)
PRIM_VALUES = Pass(
    name="prim-values",
    phase="finish",
    words=marked("Computes scalars that depend on shapes."),
    make=_relax("ComputePrimValue"),
    theirs=EVERYWHERE,
    required=True,
)
LOWER_SHAPES = Pass(
    name="lower-shapes",
    phase="finish",
    words=marked("Checks and computes shapes when the model runs."),
    make=_relax("VMShapeLower"),
    theirs=EVERYWHERE,
    required=True,
)
GLOBAL_SYMBOLS = Pass(
    name="global-symbols",
    phase="finish",
    words=marked("Names the functions as the compiled library exports them."),
    make=_relax("AttachGlobalSymbol"),
    theirs=EVERYWHERE,
    required=True,
)
