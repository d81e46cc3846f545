"""Compiles a model for a dimension that varies: one artifact with kernels for several sizes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from tvmscope.core.artifact import Artifact
from tvmscope.core.model import Prepared
from tvmscope.core.prepared.dynamic import Dynamic, DynamicRange, SizeCost, parse_dynamic
from tvmscope.errors import BuildError, UsageError
from tvmscope.measure.remote import here
from tvmscope.measure.worker import run_within
from tvmscope.messages import msg, msgn
from tvmscope.progress import Progress
from tvmscope.quantities import format_s
from tvmscope.runtime import dynamic as dynamics
from tvmscope.runtime.artifact import read
from tvmscope.stages.builder import Builder
from tvmscope.stages.load import prepared
from tvmscope.stages.options import Options
from tvmscope.stages.planning.plan import with_export
from tvmscope.stages.targets import resolve_targets, threads_of
from tvmscope.tuning.records.lookup import find_choices
from tvmscope.workflow.sizing.measure_sizes import find_wrong_sizes, measure_size

_WRONG_SIZES = here(find_wrong_sizes)
_TIMEOUT_S = 3600.0
_DURATION_S = 2.0
"""Of measuring, per size and side: what is measured are the calls around the kernels."""
_SHARE = 1.3
"""The weights of all sizes together should not exceed this, relative to those of one size."""


def compile_sizes(model: Any, output: Path, options: Options, progress: Progress) -> Artifact:
    """Compile and verify each listed size, then one between them; weights are shared."""
    (target,) = resolve_targets(options)
    if target.kind != "llvm":
        raise UsageError(msg("--dynamic compiles for CPUs only; give --target cpu"))
    options = with_export(options, wanted=False)
    with ExitStack() as stack:
        example = stack.enter_context(prepared(model, options))
        wanted = _checked(parse_dynamic(str(options.dynamic)), example)
        shapes = example.model.shapes
        ready: dict[int, Prepared] = {}
        for size in (*wanted.sizes, *_between(wanted)):
            progress.stage(
                msg("load"), msg("{model}, size {size}", model=example.model.name, size=size)
            )
            load = replace(options.load, shapes=wanted.at(shapes, size), batch_size=None)
            ready[size] = stack.enter_context(prepared(model, replace(options, load=load)))
        base = shapes[wanted.places[0][0]][wanted.places[0][1]]
        plan = Dynamic(
            range=wanted,
            base=base if base in wanted.sizes else wanted.sizes[0],
            output_axes=_output_axes(ready),
        )
        threads = threads_of(options)
        config = replace(
            options.compile,
            precision=options.precisions[0],
            choices=options.compile.choices or find_choices(options.db, target, threads).choices,
        )
        for size in wanted.sizes:
            told = msg(
                "{model} for {target}, size {size}",
                model=example.model.name,
                target=target.label,
                size=size,
            )
            progress.stage(msg("compile"), told)
            with Builder(ready[size], threads) as builder:
                builder.build(dynamics.folder_of(output, plan, size), target, config)
        plan = replace(plan, weights_share=dynamics.share_weights(output, plan))
        dynamics.save(plan, output)
        plan = _examined(output, plan, ready, options, progress)
    dynamics.save(plan, output)
    _tell(plan, progress)
    return read(output)


def _checked(wanted: DynamicRange, example: Prepared) -> DynamicRange:
    shapes = example.model.shapes
    for name, axis in wanted.places:
        if name not in shapes or axis >= len(shapes[name]):
            raise UsageError(
                msg(
                    "--dynamic: the model has no dimension {axis} of input '{name}' (inputs: "
                    "{names})",
                    axis=axis,
                    name=name,
                    names=list(shapes),
                )
            )
    return wanted.joined(shapes)


def _between(wanted: DynamicRange) -> tuple[int, ...]:
    """Return a size without its own kernels, in the widest gap."""
    sizes = (wanted.low - 1, *wanted.sizes)
    low, high = max(pairwise(sizes), key=lambda pair: pair[1] - pair[0])
    return ((low + high) // 2,) if high - low > 1 else ()


def _output_axes(ready: Mapping[int, Prepared]) -> dict[str, int | None]:
    """Return the axis of each output whose length is the size that varies."""
    first, *others = ready
    axes: dict[str, int | None] = {}
    for spec in ready[first].model.outputs:
        shapes = {
            size: next(o.shape for o in ready[size].model.outputs if o.name == spec.name)
            for size in ready
        }
        differ = {
            axis
            for size in others
            for axis, (a, b) in enumerate(zip(shapes[first], shapes[size], strict=True))
            if a != b
        }
        fits = [a for a in differ if all(shapes[size][a] == size for size in ready)]
        axes[spec.name] = fits[0] if len(differ) == 1 and fits else None
    return axes


def _examined(
    output: Path, plan: Dynamic, ready: Mapping[int, Prepared], options: Options, progress: Progress
) -> Dynamic:
    """With what each size costs, and the way in which sizes between them are right."""
    progress.stage(msg("verify"), msgn("{count} size", "{count} sizes", len(plan.range.sizes)))
    tolerance = options.tolerance or options.precisions[0].tolerance
    own = {size: ready[size].folder for size in plan.range.sizes}
    if problems := run_within(_TIMEOUT_S, _WRONG_SIZES, output, own, tolerance):
        size, problem = next(iter(problems.items()))
        raise BuildError(msg("size {size} is wrong: {problem}", size=size, problem=problem))
    between = {size: ready[size].folder for size in _between(plan.range)}
    costs = _costs(output, own, options, progress)
    along = all(axis == 0 for _, axis in plan.range.places)
    ways: tuple[Literal["split", "pad"], ...] = ("split", "pad") if along else ("pad", "split")
    for way in ways if between else ():
        tried = replace(plan, rest=way)
        dynamics.save(tried, output)
        if not run_within(_TIMEOUT_S, _WRONG_SIZES, output, between, tolerance):
            return replace(tried, costs=costs + _costs(output, between, options, progress))
    return replace(plan, costs=costs)


def _costs(
    output: Path, cases: Mapping[int, Path], options: Options, progress: Progress
) -> tuple[SizeCost, ...]:
    """What each size costs, measured one size after the other."""
    measure = replace(options.measure, duration_s=min(options.measure.duration_s, _DURATION_S))
    found = []
    for size, ready in cases.items():
        progress.stage(msg("measure"), msg("size {size}", size=size))
        found.append(
            measure_size(
                output,
                size,
                ready,
                threads=threads_of(options),
                options=measure,
                progress=progress,
            )
        )
    return tuple(found)


def _ratio(cost: SizeCost) -> str:
    ratio = cost.seconds / cost.static_s if cost.ratio is None else cost.ratio
    limits = "" if cost.ci95 is None else f" [{cost.ci95[0]:.2f}, {cost.ci95[1]:.2f}]"
    return f"{ratio:.2f}x{limits}"


def _tell(plan: Dynamic, progress: Progress) -> None:
    for cost in plan.costs:
        own = cost.size in plan.range.sizes
        progress.note(
            msg(
                "size {size}: {time} a run, {ratio} the time of {what}",
                size=cost.size,
                time=format_s(cost.seconds),
                ratio=_ratio(cost),
                what=msg("its kernels alone") if own else msg("the kernels of the next size"),
            )
        )
    rest = {
        "split": msg("other sizes are split into these"),
        "pad": msg("other sizes are padded to the next of these"),
        "none": msg("other sizes are refused: neither parts nor padding give the right result"),
    }
    progress.note(
        msg(
            "sizes with kernels: {sizes}; {rest}; weights are held {share:.2f} times",
            sizes=list(plan.range.sizes),
            rest=rest[plan.rest],
            share=plan.weights_share,
        )
    )
    if plan.weights_share > _SHARE:
        progress.note(
            msg("kernels of these sizes want different layouts of weights; name fewer sizes")
        )
