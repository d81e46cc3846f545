"""Treats an artifact as a row: no model is loaded, and nothing is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tvmscope.backends import all_backends
from tvmscope.backends.api import Backend, LoadRequest
from tvmscope.benchmark.entry import Entry
from tvmscope.core.artifact import Artifact
from tvmscope.core.model import Model
from tvmscope.core.row import RowKey, Task, Variant
from tvmscope.core.session import Session
from tvmscope.errors import UsageError
from tvmscope.messages import msg
from tvmscope.models.inputs import seeded
from tvmscope.runtime import artifact as artifacts
from tvmscope.runtime.check import check, check_kind
from tvmscope.stages.job import begin
from tvmscope.stages.options import Options
from tvmscope.stages.planning.rows import items_per_run
from tvmscope.stages.targets import threads_of
from tvmscope.storage.files import write_npz


def read_checked(path: Path, options: Options) -> Artifact:
    """Return the artifact in a folder; raise if it cannot run here, or not on the requested
    device."""
    artifact = artifacts.read(path)
    check_kind(artifact, options.device)
    check(artifact)
    return artifact


@contextmanager
def with_inputs(
    found: Sequence[Artifact], options: Options
) -> Iterator[tuple[Path, tuple[Entry, ...]]]:
    """Yield a folder for outputs, and the entries of artifacts on the inputs of the first."""
    with TemporaryDirectory(prefix="tvmscope-") as scratch:
        write_npz(Path(scratch) / "inputs.npz", inputs_for(found[0], options))
        yield Path(scratch), tuple(entry_for(artifact, scratch, options) for artifact in found)


def entry_for(artifact: Artifact, folder: str, options: Options) -> Entry:
    """Return how to load an artifact; `folder` contains its inputs."""
    threads = threads_of(options)
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
        items=items_per_run(options, {s.name: s.shape for s in artifact.inputs}),
    )


def inputs_for(artifact: Artifact, options: Options) -> dict[str, np.ndarray]:
    """Return inputs from `--inputs`, or seeded ones that fit the artifact."""
    file = options.load.inputs_file
    if file is not None:
        try:
            with np.load(file) as data:
                return {name: data[name] for name in data.files}
        except (OSError, ValueError) as e:
            raise UsageError(
                msg("--inputs {file} cannot be read as .npz: {reason}", file=file, reason=str(e))
            ) from e
    return {spec.name: seeded(spec, options.load.seed) for spec in artifact.inputs}


def _backend(artifact: Artifact) -> Backend:
    """Return the backend that runs an artifact; the user's own pipeline runs as ours."""
    backends, _ = all_backends()
    compiled = (b for b in backends.values() if b.compiles == artifact.pipeline and not b.tuned)
    return next(compiled, backends["tvmscope"])


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


def session_of(artifact: Artifact, options: Options) -> Session:
    """Return a session about an artifact alone."""
    model = Model(
        name=artifact.model,
        source=artifact.source,
        format=artifact.format,
        inputs=artifact.inputs,
        outputs=artifact.outputs,
        digest=artifact.model_digest,
        weights=artifact.weights,
    )
    return begin(model, options, (artifact.target,))
