"""Plans the rows of a table: every requested backend, target and precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvmscope.backends import all_backends
from tvmscope.backends.api import Backend
from tvmscope.core.precision import Precision
from tvmscope.core.row import RowKey, Variant
from tvmscope.core.target import Target
from tvmscope.errors import UsageError
from tvmscope.messages import Text, msg
from tvmscope.runtime.check import cpu_problem
from tvmscope.stages.options import Options
from tvmscope.stages.planning.rows import PlannedRow
from tvmscope.stages.planning.tuned_rows import Records, no_records, with_records


def known_backends(options: Options) -> dict[str, Backend]:
    """Return all backends by name; raise if the request names an unknown one."""
    backends, _ = all_backends()
    unknown = [name for name in options.backends if name not in backends]
    if unknown:
        raise UsageError(
            msg(
                "no backend named {unknown}; known: {backends}",
                unknown=unknown,
                backends=list(backends),
            )
        )
    return backends


def candidates(
    options: Options, where: Sequence[Target]
) -> list[tuple[Target, Precision, Backend]]:
    """Return the requested backends x targets x precisions that each backend supports.

    Compiled backends are listed in every precision: a row then says why there is no time.
    """
    backends = known_backends(options)
    asked = [b for b in backends.values() if _is_asked(b, options)]
    found = [
        (target, precision, backend)
        for target in where
        for precision in options.precisions
        for backend in asked
        if target.device in backend.kinds
        and (
            precision in backend.precisions_on(target.device)
            or (backend.compiles and not backend.tuned)
        )
    ]
    if not any(p in backend.precisions_on(target.device) for target, p, backend in found):
        raise UsageError(msg("no backend can run this: check --backends, --precision and --target"))
    return found


def _is_asked(backend: Backend, options: Options) -> bool:
    if not options.backends:
        return not backend.searches
    return backend.name in options.backends


def with_needed_export(options: Options, where: Sequence[Target]) -> Options:
    """Disable the export to ONNX, which takes seconds, unless an available backend needs it."""
    wanted = any(
        backend.needs_onnx and why_unavailable(backend, target) is None
        for target, _precision, backend in candidates(options, where)
    )
    return with_export(options, wanted)


def with_export(options: Options, wanted: bool) -> Options:
    """Return the options with or without an ONNX form of a torch model."""
    return replace(options, load=replace(options.load, need_onnx=wanted))


def why_unavailable(backend: Backend, target: Target) -> Text | None:
    """Say why a backend cannot run on a target here, for any model; None if it can."""
    reason = backend.unavailable(target.device)
    if reason is None and target.kind == "llvm" and (problem := cpu_problem(target)):
        return msg("the target is {problem}", problem=problem)
    return reason


def can_cross_compile(backend: Backend) -> bool:
    """Whether a backend can compile here for targets that it cannot run on here."""
    return backend.unavailable("cpu") is None and not backend.searches


def plan_rows(
    options: Options,
    where: Sequence[Target],
    model_format: str,
    records: Records = no_records,
) -> list[PlannedRow]:
    """Return the candidates in their graph modes, with the reasons for unavailable ones.

    `records` looks up tuning records; without it there is no tuned row, unless one is requested.
    """
    rows: list[PlannedRow] = []
    for target, precision, backend in candidates(options, where):
        graphs = _graph_modes(options, target, backend)
        made = [_row(backend, target, precision, g, model_format, options) for g in graphs]
        if backend.tuned:
            made = with_records(made, rows, options, records)
        rows += made
    return rows


def _graph_modes(options: Options, target: Target, backend: Backend) -> tuple[bool, ...]:
    """Return the CUDA graph modes, each a separate row: both, unless one was requested."""
    if target.kind != "cuda" or not backend.graphs:
        return (False,)
    modes = (True,) if backend.only_graphs else (False, True)
    return modes if options.graph is None else tuple(m for m in modes if m == options.graph)


def _row(
    backend: Backend, target: Target, precision: Precision, graph: bool, form: str, options: Options
) -> PlannedRow:
    reason = why_unavailable(backend, target)
    cross = reason is not None and can_cross_compile(backend)
    precisions = backend.precisions_on(target.device)
    if precision not in precisions:
        cross = False
        reason = msg(
            "computes in {precisions} only, not in {precision}",
            precisions=[str(known) for known in precisions],
            precision=str(precision),
        )
    elif form not in backend.formats:
        cross = False
        reason = msg(
            "runs {formats} models only; this is an {form} model",
            formats=backend.formats,
            form=form.upper(),
        )
    pipeline = backend.compiles
    if pipeline == "tvmscope":  # `--pipeline` says what our row runs: ours, or the user's own
        pipeline = options.compile.pipeline
    variant = Variant(
        backend=backend.name,
        family=backend.family,
        precision=precision,
        pipeline=pipeline,
        graph=graph,
    )
    key = RowKey.of(variant, target)
    return PlannedRow(backend=backend, target=target, key=key, unavailable=reason, cross=cross)
