"""The stages that the jobs share, each run in a process of its own so that a crash is a result."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tvmscope.backends import all_backends
from tvmscope.backends._api import Backend, LoadRequest
from tvmscope.bench.plan import Entry
from tvmscope.compiler import cpu_features, targets
from tvmscope.core.artifact import Artifact
from tvmscope.core.model import Model, Prepared
from tvmscope.core.target import Target
from tvmscope.core.task import Task, Variant
from tvmscope.errors import TvmscopeError, UsageError, one_line
from tvmscope.measure.worker import run_isolated
from tvmscope.workflow.options import Options
from tvmscope.workflow.places import cache_folder

BUILD_TIMEOUT_S = 3600.0
TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table to come: a variant of a backend on a target."""

    backend: Backend
    target: Target
    variant: Variant
    unavailable: str | None

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


@contextmanager
def prepared(model: Any, options: Options) -> Iterator[Prepared]:
    """Load the model in a child process and lay it out in a temporary folder."""
    with TemporaryDirectory(prefix="tvmscope-") as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        source, pickled = str(model), None
        if not isinstance(model, str | Path):
            pickled = str(_pickle_module(model, options, Path(scratch)))
            source = type(model).__name__
        described: Model = run_isolated(
            "tvmscope.models.prepare:prepare",
            source,
            str(folder),
            options.load,
            pickled,
            timeout_s=BUILD_TIMEOUT_S,
        )
        yield Prepared(folder, described)


def _pickle_module(model: Any, options: Options, folder: Path) -> Path:
    import cloudpickle

    if options.example_inputs is None:
        raise UsageError("a model given in memory needs example inputs: inputs=(x, ...)")
    file = folder / "module.pickle"
    file.write_bytes(
        cloudpickle.dumps((model, tuple(options.example_inputs)), protocol=pickle.HIGHEST_PROTOCOL)
    )
    return file


def plan_rows(options: Options, where: Sequence[Target], model_format: str) -> list[Row]:
    """Backends x targets x precisions x graph modes, with what is unavailable and why."""
    backends, _ = all_backends()
    unknown = [name for name in options.backends if name not in backends]
    if unknown:
        raise UsageError(f"no backend named {', '.join(unknown)}; known: {', '.join(backends)}")
    rows = []
    for target in where:
        for precision in options.precisions:
            for backend in backends.values():
                if options.backends and backend.name not in options.backends:
                    continue
                if target.device not in backend.kinds or precision not in backend.precisions:
                    continue
                graphs = (False, True) if target.kind == "cuda" and backend.graphs else (False,)
                rows += [_row(backend, target, precision, g, model_format) for g in graphs]
    if not rows:
        raise UsageError("no backend can run this: check --backends, --precision and --target")
    return rows


def _row(backend: Backend, target: Target, precision: str, graph: bool, form: str) -> Row:
    reason = backend.unavailable(target.device)
    if form not in backend.formats:
        reason = f"runs {' and '.join(backend.formats)} models only, this is an {form.upper()} one"
    variant = Variant(
        backend=backend.name, precision=precision, pipeline=backend.compiles, graph=graph
    )
    return Row(backend=backend, target=target, variant=variant, unavailable=reason)


def build_artifact(
    ready: Prepared, row: Row, options: Options, output: Path, *, pipeline: str
) -> Artifact:
    """Compile one variant in a child process."""
    config = replace(
        options.compile,
        pipeline=pipeline,
        precision=row.variant.precision,
        graph=row.variant.graph,
        threads=threads_of(options),
    )
    host = row.target
    if row.target.kind == "cuda":
        host = targets.host_target(cache=cache_folder())
    built: Artifact = run_isolated(
        "tvmscope.compiler.build:build",
        ready,
        output,
        row.target,
        host,
        config,
        env=row.backend.env(threads_of(options)),
        timeout_s=BUILD_TIMEOUT_S,
    )
    return built


def make_entry(ready: Prepared, row: Row, options: Options, artifacts: Path) -> Entry:
    """Compile what the row needs; a failure becomes the row's reason."""
    threads, built, failure = threads_of(options), None, row.unavailable
    if failure is None and row.backend.compiles:
        chosen = options.compile.pipeline
        pipeline = row.backend.compiles
        if pipeline == "tvmscope" and chosen not in ("tvm", "tvmscope"):
            pipeline = chosen  # a user's own pipeline takes our row
        try:
            built = build_artifact(
                ready, row, options, artifacts / row.folder_name, pipeline=pipeline
            )
        except TvmscopeError as e:
            failure = one_line(e)
    request = LoadRequest(
        folder=str(ready.folder),
        device=row.target.device,
        precision=row.variant.precision,
        threads=threads,
        graph=row.variant.graph,
        mode=options.measure.mode,
        artifact=str(built.path) if built else None,
    )
    return Entry(
        task=task_of(ready.model, row, threads),
        load=row.backend.load,
        request=request,
        env=row.backend.env(threads),
        unavailable=row.unavailable,
        failure=failure if row.unavailable is None else None,
        build_s=built.build_s if built else None,
        warnings=built.warnings if built else (),
    )


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
