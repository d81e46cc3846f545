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
from tvmscope.core.target import Target
from tvmscope.core.task import Task, Variant
from tvmscope.core.tuning import Choice
from tvmscope.errors import BackendUnavailable, ImportModelError, TvmscopeError, UsageError
from tvmscope.machine import cpu_features
from tvmscope.measure.worker import WorkerDied, run_isolated
from tvmscope.models.torch_module import pickle_module
from tvmscope.runtime.artifact import cpu_problem, read_kernels
from tvmscope.workflow import tuned_rows
from tvmscope.workflow.builder import Builder
from tvmscope.workflow.options import Options
from tvmscope.workflow.places import cache_folder

LOAD_TIMEOUT_S = 3600.0
REFERENCES = {"torch": "torch", "onnx": "onnxruntime"}
"""Which framework's outputs a model of each format is verified against."""
TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """A row of the table to come: a variant of a backend on a target."""

    backend: Backend
    target: Target
    variant: Variant
    unavailable: str | None
    cross: bool = False
    """Its code cannot run here; it is compiled all the same, for a machine that can."""
    choices: Mapping[str, Choice] = field(default_factory=dict)
    """What tuning records say, for a row that is there for their sake."""
    warnings: tuple[str, ...] = ()
    compile: CompileOptions | None = None
    """How it is compiled, where that is not what the options say; with its own choices."""
    threads: int | None = None
    """Where it runs on another number than the options say."""

    @property
    def builds(self) -> bool:
        """Whether there is something to compile."""
        return self.backend.compiles is not None and (self.unavailable is None or self.cross)

    @property
    def folder_name(self) -> str:
        """Where its artifact goes, inside a session's folder."""
        return f"{self.variant.label}-{self.target.label}".replace(" ", "-").replace(":", "-")


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
        row.backend.needs_onnx and row.unavailable is None
        for row in plan_rows(options, where, "torch")
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
                f"'{source}' could not be loaded: {e.reason}; run its code by itself to see why"
            ) from e
        yield Prepared(folder, described)


def known_backends(options: Options) -> dict[str, Backend]:
    """All backends by name; refuses a request for one that is not among them."""
    backends, _ = all_backends()
    unknown = [name for name in options.backends if name not in backends]
    if unknown:
        raise UsageError(f"no backend named {', '.join(unknown)}; known: {', '.join(backends)}")
    return backends


def plan_rows(options: Options, where: Sequence[Target], model_format: str) -> list[Row]:
    """Backends x targets x precisions x graph modes, with what is unavailable and why."""
    backends = known_backends(options)
    rows = []
    for target in where:
        for precision in options.precisions:
            for backend in backends.values():
                if options.backends and backend.name not in options.backends:
                    continue
                if target.device not in backend.kinds or precision not in backend.precisions:
                    continue
                graphs = _graph_modes(options, target, backend)
                made = [_row(backend, target, precision, g, model_format, options) for g in graphs]
                if backend.tuned:
                    made = tuned_rows.with_records(made, options, threads_of(options))
                rows += made
    if not rows:
        raise UsageError("no backend can run this: check --backends, --precision and --target")
    return rows


def _graph_modes(options: Options, target: Target, backend: Backend) -> tuple[bool, ...]:
    """CUDA graphs are rows of their own: both, unless one was asked for."""
    if target.kind != "cuda" or not backend.graphs:
        return (False,)
    return (False, True) if options.graph is None else (options.graph,)


def _row(
    backend: Backend, target: Target, precision: str, graph: bool, form: str, options: Options
) -> Row:
    reason = backend.unavailable(target.device)
    if reason is None and target.kind == "llvm" and (problem := cpu_problem(target)):
        reason = f"the target is {problem}"
    cross = reason is not None and backend.unavailable("cpu") is None
    if form not in backend.formats:
        cross = False
        reason = f"runs {' and '.join(backend.formats)} models only, this is an {form.upper()} one"
    pipeline = backend.compiles
    if pipeline == "tvmscope":  # `--pipeline` says what our row runs: ours, or the user's own
        pipeline = options.compile.pipeline
    variant = Variant(backend=backend.name, precision=precision, pipeline=pipeline, graph=graph)
    return Row(backend=backend, target=target, variant=variant, unavailable=reason, cross=cross)


def plan_entries(
    rows: Sequence[Row], ready: Prepared, options: Options, artifacts: Path, stack: ExitStack
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


def _bare_entry(row: Row, ready: Prepared, options: Options) -> Entry:
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


def loadable_entry(row: Row, ready: Prepared, options: Options, artifacts: Path) -> Entry:
    """The entry of a row that is built already."""
    entry = _bare_entry(row, ready, options)
    if not row.builds:
        return entry
    built = replace(entry.request, artifact=str(artifacts / row.folder_name))
    return replace(entry, request=built)


def _build_entry(
    entry: Entry, builder: Builder, row: Row, options: Options, artifacts: Path
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
        built = builder.build(artifacts / row.folder_name, row.target, config)
    except UsageError:  # a pass or a pipeline that does not exist: no row could be built
        raise
    except BackendUnavailable as e:
        return replace(entry, unavailable=str(e))
    except TvmscopeError as e:  # our own words, in one line; the list of a pre-flight stays whole
        return replace(entry, unavailable=None, failure=str(e))
    if row.choices and not any(kernel.tuned for kernel in read_kernels(built.path)):
        return replace(entry, unavailable=tuned_rows.NO_KERNEL)
    return replace(
        entry,
        request=replace(entry.request, artifact=str(built.path)),
        unavailable=_unavailable(row, built),
        build_s=built.build_s,
        warnings=(*built.warnings, *row.warnings),
    )


def _unavailable(row: Row, built: Artifact) -> str | None:
    if row.cross:
        return f"cross-compiled into {built.path}, not run: {row.unavailable}"
    return row.unavailable


def items_per_run(options: Options, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """In throughput mode the batch: the first dimension of the first input that has one."""
    if options.measure.mode != "throughput":
        return None
    return next((shape[0] for shape in shapes.values() if shape), 1)


def task_of(model: Model, row: Row, threads: int) -> Task:
    """The measurement's identity."""
    return Task(
        model=model.name,
        digest=model.digest,
        target=row.target.label,
        threads=threads,
        variant=row.variant,
        shapes=model.shapes,
    )


def tolerance(options: Options, task: Task) -> float:
    """The largest accepted error of a task's outputs."""
    if options.tolerance is not None:
        return options.tolerance
    return TOLERANCES[task.variant.precision]
