"""The stages that the jobs share, each run in a process of its own so that a crash is a result."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvmscope.backends import all_backends
from tvmscope.backends.api import Backend, LoadRequest
from tvmscope.benchmark.plan import Entry
from tvmscope.compiler import targets
from tvmscope.core.artifact import Artifact
from tvmscope.core.model import Model, Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.precision import Precision
from tvmscope.core.row import RowKey, Task, Variant
from tvmscope.core.target import Target
from tvmscope.core.tuning import Choice
from tvmscope.errors import ImportModelError, TvmscopeError, UsageError
from tvmscope.machine import cpu_features
from tvmscope.measure.worker import WorkerDied, run_isolated
from tvmscope.messages import Text, msg
from tvmscope.models.torch_module import pickle_module
from tvmscope.runtime.artifact import cpu_problem, read_kernels
from tvmscope.workflow import tuned_rows
from tvmscope.workflow.builder import Builder
from tvmscope.workflow.options import Options
from tvmscope.workflow.places import cache_folder

LOAD_TIMEOUT_S = 3600.0
REFERENCES = {"torch": "torch", "onnx": "onnxruntime"}
"""Which framework's outputs a model of each format is verified against."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedRow:
    """A row of the table to come: a variant of a backend on a target."""

    backend: Backend
    target: Target
    key: RowKey
    """On `target`; `changed` and `moved` keep the two in step."""
    unavailable: Text | None
    cross: bool = False
    """Its code cannot run here; it is compiled all the same, for a machine that can."""
    choices: Mapping[str, Choice] = field(default_factory=dict)
    """What tuning records say, for a row that is there for their sake."""
    untuned: RowKey | None = None
    """For such a row the planned one that differs in the records alone, where there is one."""
    warnings: tuple[Text, ...] = ()
    compile: CompileOptions | None = None
    """How it is compiled, where that is not what the options say; with its own choices."""
    threads: int | None = None
    """Where it runs on another number than the options say."""

    @property
    def builds(self) -> bool:
        """Whether there is something to compile."""
        return self.backend.compiles is not None and (self.unavailable is None or self.cross)

    @property
    def variant(self) -> Variant:
        return self.key.variant

    def changed(self, **fields: Any) -> PlannedRow:
        """The row of another variant: these fields of the present one replaced."""
        return replace(self, key=replace(self.key, variant=replace(self.variant, **fields)))

    def moved(self, target: Target) -> PlannedRow:
        """The row of the same variant on another target."""
        return replace(self, target=target, key=RowKey.of(self.variant, target))


def threads_of(options: Options) -> int:
    """The thread count that every backend gets."""
    if options.threads is not None and options.threads < 1:
        raise UsageError(f"--threads {options.threads}: give at least 1")
    return options.threads or cpu_features.usable_cores()


def resolve_targets(options: Options) -> tuple[Target, ...]:
    """All targets that were asked for."""
    cores = threads_of(options)
    return tuple(
        targets.resolve(text, cores=cores, cache=cache_folder()) for text in options.targets
    )


def name_of(model: Any) -> str:
    """What was given, in words: the text, or a module's class."""
    return str(model) if isinstance(model, str | Path) else type(model).__name__


def without_needless_export(options: Options, where: Sequence[Target]) -> Options:
    """Exporting to ONNX takes seconds: only for backends that want it and are here."""
    wanted = any(
        backend.needs_onnx and why_unavailable(backend, target) is None
        for target, _precision, backend in candidates(options, where)
    )
    return replace(options, load=replace(options.load, need_onnx=wanted))


@contextmanager
def prepared(model: Any, options: Options) -> Iterator[Prepared]:
    """Load the model in a child process and lay it out in a temporary folder."""
    with TemporaryDirectory(prefix="tvmscope-") as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        source, pickled = name_of(model), None
        if not isinstance(model, str | Path):
            if options.example_inputs is None:
                raise UsageError("a model given in memory needs example inputs: inputs=(x, ...)")
            pickled = str(Path(scratch) / "module.pickle")
            pickle_module(model, options.example_inputs, Path(pickled))
        try:
            described: Model = run_isolated(
                "tvmscope.models.prepare:prepare",
                source,
                str(folder),
                options.load,
                pickled,
                timeout_s=LOAD_TIMEOUT_S,
            )
        except WorkerDied as e:
            raise ImportModelError(
                msg(
                    "'{source}' could not be loaded: {reason}; run its code by itself to see why",
                    source=source,
                    reason=e.reason,
                )
            ) from e
        yield Prepared(folder, described)


def known_backends(options: Options) -> dict[str, Backend]:
    """All backends by name; refuses a request for one that is not among them."""
    backends, _ = all_backends()
    unknown = [name for name in options.backends if name not in backends]
    if unknown:
        raise UsageError(f"no backend named {', '.join(unknown)}; known: {', '.join(backends)}")
    return backends


def candidates(
    options: Options, where: Sequence[Target]
) -> list[tuple[Target, Precision, Backend]]:
    """Backends x targets x precisions as far as was asked for and a backend knows of them."""
    backends = known_backends(options)
    asked = [b for b in backends.values() if not options.backends or b.name in options.backends]
    found = [
        (target, precision, backend)
        for target in where
        for precision in options.precisions
        for backend in asked
        if target.device in backend.kinds and precision in backend.precisions
    ]
    if not found:
        raise UsageError("no backend can run this: check --backends, --precision and --target")
    return found


def why_unavailable(backend: Backend, target: Target) -> Text | None:
    """Why a backend cannot run on a target here, whatever the model; None where it can."""
    reason = backend.unavailable(target.device)
    if reason is None and target.kind == "llvm" and (problem := cpu_problem(target)):
        return msg("the target is {problem}", problem=problem)
    return reason


def can_cross_compile(backend: Backend) -> bool:
    """Whether a backend compiles here for targets that it cannot run on here."""
    return backend.unavailable("cpu") is None


def plan_rows(options: Options, where: Sequence[Target], model_format: str) -> list[PlannedRow]:
    """The candidates in their graph modes, with what is unavailable and why."""
    rows: list[PlannedRow] = []
    for target, precision, backend in candidates(options, where):
        graphs = _graph_modes(options, target, backend)
        made = [_row(backend, target, precision, g, model_format, options) for g in graphs]
        if backend.tuned:
            made = tuned_rows.with_records(made, rows, options, threads_of(options))
        rows += made
    return rows


def _graph_modes(options: Options, target: Target, backend: Backend) -> tuple[bool, ...]:
    """CUDA graphs are rows of their own: both, unless one was asked for."""
    if target.kind != "cuda" or not backend.graphs:
        return (False,)
    return (False, True) if options.graph is None else (options.graph,)


def _row(
    backend: Backend, target: Target, precision: Precision, graph: bool, form: str, options: Options
) -> PlannedRow:
    reason = why_unavailable(backend, target)
    cross = reason is not None and can_cross_compile(backend)
    if form not in backend.formats:
        cross = False
        reason = msg(
            "runs {formats} models only, this is an {form} one",
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


def plan_entries(
    rows: Sequence[PlannedRow], ready: Prepared, options: Options, artifacts: Path, stack: ExitStack
) -> list[Entry]:
    """An entry per row of the table to come; rows that need an artifact carry its build.

    Rows that differ in CUDA graphs only share their kernels, so they make up a chain, which has a
    compiler process of its own until the stack closes or its last row is built.
    """
    builders: dict[Hashable, Builder] = {}
    entries = []
    for row in rows:
        entry = _bare_entry(row, ready, options)
        if row.builds:
            if entry.chain not in builders:
                builder = Builder(ready, threads_of(options))
                builders[entry.chain] = stack.enter_context(builder)
            builder = builders[entry.chain]
            builder.expected += 1
            make = partial(_build_entry, entry, builder, row, options, artifacts)
            entry = replace(entry, build=make)
        entries.append(entry)
    return entries


def _bare_entry(row: PlannedRow, ready: Prepared, options: Options) -> Entry:
    threads = row.threads or threads_of(options)
    return Entry(
        task=task_of(ready.model, row, threads),
        chain=(row.backend.name, row.variant.pipeline, row.variant.precision, row.target.label),
        load=row.backend.load,
        request=LoadRequest(
            folder=str(ready.folder),
            device=row.target.device,
            precision=row.variant.precision,
            threads=threads,
            graph=row.variant.graph,
        ),
        env=row.backend.env(threads),
        unavailable=row.unavailable,
        items=items_per_run(options, ready.model.shapes),
    )


def loadable_entry(row: PlannedRow, ready: Prepared, options: Options, artifacts: Path) -> Entry:
    """The entry of a row that is built already."""
    entry = _bare_entry(row, ready, options)
    if not row.builds:
        return entry
    built = replace(entry.request, artifact=str(artifacts / row.key.folder_name))
    return replace(entry, request=built)


def _build_entry(
    entry: Entry, builder: Builder, row: PlannedRow, options: Options, artifacts: Path
) -> Entry:
    """Compile what the row needs; a failure becomes the row's reason."""
    config = replace(
        row.compile or replace(options.compile, choices=dict(row.choices)),
        pipeline=row.variant.pipeline or options.compile.pipeline,
        precision=row.variant.precision,
        graph=row.variant.graph,
    )
    if row.choices and tuned_rows.are_useless(row, artifacts):
        return replace(entry, unavailable=tuned_rows.NO_KERNEL)
    try:
        built = builder.build(artifacts / row.key.folder_name, row.target, config)
    except UsageError:  # a pass or a pipeline that does not exist: no row could be built
        raise
    except TvmscopeError as e:  # our own words, in one line; the list of a pre-flight stays whole
        return replace(entry, unavailable=None, failure=e.message)
    if row.choices and not any(kernel.tuned for kernel in read_kernels(built.path)):
        return replace(entry, unavailable=tuned_rows.NO_KERNEL)
    return replace(
        entry,
        request=replace(entry.request, artifact=str(built.path)),
        unavailable=_unavailable(row, built),
        build_s=built.build_s,
        warnings=(*built.warnings, *row.warnings),
    )


def _unavailable(row: PlannedRow, built: Artifact) -> Text | None:
    if not row.cross:
        return row.unavailable
    why = row.unavailable or ""
    return msg("cross-compiled into {path}, not run: {why}", path=built.path, why=why)


def items_per_run(options: Options, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """In throughput mode the batch: the first dimension of the first input that has one."""
    if options.measure.mode != "throughput":
        return None
    return next((shape[0] for shape in shapes.values() if shape), 1)


def task_of(model: Model, row: PlannedRow, threads: int) -> Task:
    """The measurement's identity."""
    return Task(
        model=model.name,
        digest=model.digest,
        key=row.key,
        threads=threads,
        shapes=model.shapes,
    )


def tolerance(options: Options, task: Task) -> float:
    """The largest accepted error of a task's outputs."""
    if options.tolerance is not None:
        return options.tolerance
    return task.variant.precision.tolerance
