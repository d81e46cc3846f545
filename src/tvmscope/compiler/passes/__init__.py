"""The passes, one manifest per file; `PASSES` is the one ordered list of them.

The list leads from an imported module to one that is ready for the virtual machine. It contains
three pipelines: `tvm`, exactly the passes that `tvm.compile` runs for a device, `tvm-tuned`, those
of TVM's `static_shape_tuning` pipeline before them, and `tvmscope`, ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from tvmscope.compiler.manifest.anchors import Ordered, placed
from tvmscope.compiler.manifest.names import unique
from tvmscope.compiler.manifest.pass_ import PHASES, Pass
from tvmscope.compiler.passes import (
    block_layout,
    collapse_results,
    collapse_views,
    compile_units,
    cpu_rules,
    drop_empty_scatters,
    fast_math,
    fast_scatter,
    fast_select,
    fold_affine,
    fold_arithmetic,
    fold_casts,
    fold_pads,
    fold_scales,
    fuse_attention,
    gpu_rules,
    join_batch,
    join_branches,
    join_projections,
    narrow,
    narrow_results,
    nhwc,
    norm_rows,
    one_graph,
    outside_graph,
    pack_matmul,
    pad_channels,
    place_units,
    push_numbers,
    row_kernels,
    scalar_operands,
    searched_schedules,
    separable_pools,
    share_buffers,
    share_weights,
    signals,
    sink_moves,
    sink_reshapes,
    sink_shuffles,
    split_batch,
    spread_moves,
    subpixel_transposed,
    turn_attention,
    tvm_own,
    volumes,
    wide_sums,
    write_in_place,
)
from tvmscope.messages import Text, msg
from tvmscope.plugins import Found, outside

PASSES = unique(
    (
        signals.PASS,  # before batch norms are folded into convolutions of images
        volumes.PASS,
        separable_pools.PASS,
        tvm_own.FOLD_BATCH_NORM,
        tvm_own.DECOMPOSE,
        tvm_own.CANONICALIZE,
        norm_rows.PASS,
        share_weights.PASS,  # before its copies are folded
        fold_arithmetic.PASS,
        drop_empty_scatters.PASS,
        tvm_own.FOLD_GRAPH_CONSTANTS,
        turn_attention.PASS,
        fold_affine.PASS,
        fold_scales.PASS,
        join_branches.PASS,  # after batch norms of branches; one alone is a product and a sum
        push_numbers.PASS,
        fold_pads.PASS,
        scalar_operands.PASS,
        tvm_own.MIXED_PRECISION,
        wide_sums.PASS,
        fold_casts.PASS,
        # After the precision: it gives a shared scalar a variable, which ToMixedPrecision rejects.
        tvm_own.COMMON_SUBEXPRESSIONS,
        tvm_own.DEAD_CODE,
        sink_reshapes.PASS,
        split_batch.PASS,
        # After the precision, which rejects kernels; before passes that make kernels of operands.
        fast_scatter.PASS,
        fast_select.PASS,
        subpixel_transposed.PASS,
        sink_shuffles.PASS,  # those of transposed convolutions too
        fuse_attention.PASS,
        pack_matmul.PASS,
        block_layout.PASS,
        row_kernels.PASS,
        fast_math.PASS,
        nhwc.PASS,
        narrow.PASS,
        sink_moves.PASS,
        join_projections.PASS,
        collapse_views.PASS,
        pad_channels.PASS,
        place_units.PASS,
        # Run again: kernels leave their results narrow and in their own order.
        narrow_results.PASS,
        collapse_results.PASS,
        share_buffers.PASS,
        tvm_own.DISPATCH_SAMPLING,
        tvm_own.DISPATCH_SORT_SCAN,
        tvm_own.LEGALIZE,
        tvm_own.ANNOTATE_PATTERNS,
        tvm_own.FOLD_CONSTANTS,
        spread_moves.PASS,
        tvm_own.FUSE_OPS,
        tvm_own.FUSE_TIR,
        write_in_place.PASS,
        join_batch.PASS,
        searched_schedules.PASS,  # DLight schedules kernels without one
        tvm_own.DLIGHT,
        cpu_rules.PASS,
        compile_units.PASS,
        gpu_rules.PASS,
        tvm_own.RESHAPE_VIEWS,
        one_graph.PASS,  # views of inputs are known as such
        tvm_own.END_DATAFLOW,
        tvm_own.DROP_PURITY,
        tvm_own.DESTINATION_PASSING,
        tvm_own.PLAN_MEMORY,
        outside_graph.PASS,  # directly before what captures every packed call
        tvm_own.CUDA_GRAPH,
        tvm_own.LOWER_ALLOC,
        tvm_own.KILL_AFTER_USE,
        tvm_own.LOWER_BUILTINS,
        tvm_own.PRIM_VALUES,
        tvm_own.LOWER_SHAPES,
        tvm_own.GLOBAL_SYMBOLS,
    ),
    __name__,
)


def ordered() -> Ordered[Pass]:
    """Return the list with the items of other packages inserted at their anchors."""
    return _ordered(PASSES, outside("pass", Pass))


@cache
def _ordered(built_in: tuple[Pass, ...], found: Found[Pass]) -> Ordered[Pass]:
    whole = placed(built_in, found.brought, _problem)
    return replace(whole, failures=(*found.failures, *whole.failures))


def all_passes() -> tuple[Pass, ...]:
    """Return every pass, in order."""
    return ordered().manifests


def required() -> frozenset[str]:
    """Return the passes without which the virtual machine cannot run a module at all."""
    return frozenset(each.name for each in all_passes() if each.required)


def brought_by(name: str) -> str | None:
    """Return the distribution of a pass, and its version; None for a built-in one."""
    plugin = ordered().plugins.get(name)
    return None if plugin is None else plugin.origin


def _problem(tried: Sequence[Pass]) -> Text | None:
    """Why a list with a pass from outside cannot be a pipeline."""
    if any(each.theirs for each in tried if each.before or each.after):
        return msg("TVM's own pipeline takes no passes from other packages")
    places = [PHASES.index(each.phase) for each in tried]
    in_order = places == sorted(places)
    return None if in_order else msg("its phase is not that of the passes around it")
