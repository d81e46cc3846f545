"""Run an artifact alone: its own inputs or given ones, timed by the same rules as everything."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tvmscope.backends import all_backends
from tvmscope.backends.api import Backend, LoadRequest
from tvmscope.benchmark.plan import Entry
from tvmscope.benchmark.run import run
from tvmscope.core.artifact import Artifact
from tvmscope.core.measurement import ITSELF, Result
from tvmscope.core.model import Model, TensorSpec
from tvmscope.core.row import RowKey, Task, Variant
from tvmscope.core.session import Session
from tvmscope.errors import UsageError
from tvmscope.measure.worker import Worker
from tvmscope.progress import Progress, Silent
from tvmscope.runtime import artifact as artifacts
from tvmscope.storage.files import write_npz
from tvmscope.workflow import environment, stages
from tvmscope.workflow.options import Options


def run_artifact(
    path: Path,
    options: Options,
    *,
    save_outputs: Path | None = None,
    progress: Progress | None = None,
) -> Session:
    """Check, load and time an artifact; the reference of its accuracy is its own first run."""
    progress = progress or Silent()
    artifact = artifacts.read(path)
    artifacts.check(artifact)
    if save_outputs is not None and save_outputs.exists() and not options.force:
        raise UsageError(f"{save_outputs} exists; will not overwrite without --force")
    with TemporaryDirectory(prefix="tvmscope-") as scratch:
        folder = Path(scratch)
        write_npz(folder / "inputs.npz", inputs_for(artifact, options))
        entry = entry_for(artifact, scratch, options)
        outputs = folder / "outputs.npz"
        progress.stage("run", str(path))
        with Worker("tvmscope", env=entry.env, timeout_s=options.measure.timeout_s) as worker:
            worker.load(entry.load, entry.request)
            worker.outputs(outputs)
        if save_outputs is not None:
            save_outputs.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(outputs, save_outputs)
        results = run(
            [entry],
            options.measure,
            reference=outputs,
            reference_name=ITSELF,
            tolerances=lambda task: stages.tolerance(options, task),
            progress=progress,
            on_update=lambda partial: None,
            log_dir=None,
        )
    return session_of(artifact, options, results)


def entry_for(artifact: Artifact, folder: str, options: Options) -> Entry:
    """How to load an artifact; `folder` holds its inputs."""
    threads = stages.threads_of(options)
    backend = _backend(artifact)
    return Entry(
        task=_task(artifact, backend, threads),
        load=backend.load,
        request=LoadRequest(
            folder=folder,
            device=artifact.target.device,
            precision=artifact.precision,
            threads=threads,
            graph=artifact.graph,
            artifact=str(artifact.path.resolve()),
        ),
        env=backend.env(threads),
        build_s=artifact.build_s,
        items=stages.items_per_run(options, {s.name: s.shape for s in artifact.inputs}),
    )


def check_device(path: Path, device: str) -> None:
    """An artifact runs where it was compiled for; a script that says otherwise is told so."""
    built = artifacts.read(path).target.device
    named = device.split(":")[0].replace("gpu", "cuda").replace("llvm", "cpu")
    if named not in ("auto", built):
        raise UsageError(
            f"{path} is compiled for {built}, not {device}; compile with --target {named}"
        )


def inputs_for(artifact: Artifact, options: Options) -> dict[str, np.ndarray]:
    """Inputs from `--inputs`, or seeded ones that fit the artifact."""
    file = options.load.inputs_file
    if file is not None:
        try:
            with np.load(file) as data:
                return {name: data[name] for name in data.files}
        except (OSError, ValueError) as e:
            raise UsageError(f"--inputs {file} cannot be read as .npz: {e}") from e
    rng = np.random.default_rng(options.load.seed)
    return {spec.name: seeded(spec, rng) for spec in artifact.inputs}


def seeded(spec: TensorSpec, rng: np.random.Generator) -> np.ndarray:
    """Random numbers for floats; ones for integers and booleans, valid as ids and as masks."""
    if spec.dtype.startswith("float"):
        return rng.standard_normal(spec.shape).astype(spec.dtype)
    return np.ones(spec.shape, dtype=spec.dtype)


def _backend(artifact: Artifact) -> Backend:
    """The one that runs an artifact; the user's own pipeline is run as ours."""
    return all_backends()[0]["tvm" if artifact.pipeline == "tvm" else "tvmscope"]


def _task(artifact: Artifact, backend: Backend, threads: int) -> Task:
    variant = Variant(
        backend=backend.name,
        family=backend.family,
        precision=artifact.precision,
        pipeline=artifact.pipeline,
        graph=artifact.graph,
    )
    return Task(
        model=artifact.model,
        digest=artifact.model_digest,
        key=RowKey.of(variant, artifact.target),
        threads=threads,
        shapes={spec.name: spec.shape for spec in artifact.inputs},
    )


def session_of(artifact: Artifact, options: Options, results: tuple[Result, ...] = ()) -> Session:
    """A session about an artifact alone."""
    model = Model(
        name=artifact.model,
        source=artifact.source,
        format=artifact.format,
        inputs=artifact.inputs,
        outputs=artifact.outputs,
        digest=artifact.model_digest,
        weights=artifact.weights,
    )
    return Session(
        command=options.command,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=environment.collect(stages.threads_of(options)),
        model=model,
        targets=(replace(artifact.target),),
        results=results,
    )
