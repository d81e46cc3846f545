"""Compiles variants of one model in a child process that imports the model once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from tvmscope.compiler import targets
from tvmscope.core.artifact import Artifact
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.target import Target
from tvmscope.core.tuning import TuningTask
from tvmscope.errors import BuildError
from tvmscope.measure.remote import Remote, here, remote
from tvmscope.measure.worker import Worker, WorkerDied
from tvmscope.messages import msg
from tvmscope.progress import Progress
from tvmscope.runtime import artifact_cache, tvm_compat
from tvmscope.stages.places import cache_folder

if TYPE_CHECKING:
    import tvmscope.compiler.build
    import tvmscope.compiler.tunable.extract

P = ParamSpec("P")
R = TypeVar("R")

_BUILD = remote(lambda: tvmscope.compiler.build.build)
_EXTRACT = remote(lambda: tvmscope.compiler.tunable.extract.extract)

IMPORT_WITHOUT_TORCH = here(tvm_compat.import_without_torch)

BUILD_TIMEOUT_S = 3600.0


class Builder:
    """A context manager; a compilation that crashes affects only its own variant."""

    def __init__(self, ready: Prepared, threads: int, progress: Progress | None = None) -> None:
        self.ready = ready
        self.threads = threads
        self.progress = progress
        self._worker: Worker | None = None
        self._closed = False

    def build(self, output: Path, target: Target, options: CompileOptions) -> Artifact:
        """Compile one variant into the folder `output`, or copy it from the cache."""
        host = _host(target)
        own = replace(options, threads=self.threads)
        around = artifact_cache.surroundings(target, host, own)
        name = around and artifact_cache.key(self.ready, around)
        if name and (kept := artifact_cache.fetch(cache_folder(), name, output)):
            return kept
        built = self._call(_BUILD, self.ready, output.absolute(), target, host, own)
        if name:
            artifact_cache.keep(cache_folder(), name, output)
        return replace(built, path=output)

    def tasks(self, target: Target, options: CompileOptions, folder: Path) -> list[TuningTask]:
        """Return the tunable tasks of the model; the kernels' files go into `folder`."""
        return self._call(_EXTRACT, self.ready, target, options, folder)

    def _call(self, function: Remote[P, R], *args: P.args, **kw: P.kwargs) -> R:
        if self._closed:
            raise BuildError(msg("compilation was stopped"))
        try:
            return self._started().call(function, *args, **kw)
        except WorkerDied:
            self._worker = None
            raise

    def _started(self) -> Worker:
        if self._worker is None:
            env = {"TVM_NUM_THREADS": str(self.threads)}
            self._worker = Worker("compiler", env=env, timeout_s=BUILD_TIMEOUT_S)
            if self.progress is not None:
                show = self.progress.step
                self._worker.on_step = lambda step: show(*step)
            if self.ready.model.format != "torch":
                self._worker.call(IMPORT_WITHOUT_TORCH)
        return self._worker

    def pause(self) -> None:
        """Pause it during a measurement; the next build continues."""
        if self._worker is not None:
            self._worker.pause()

    def close(self) -> None:
        """End the process, if there is one; no other will be started."""
        self._closed = True
        if self._worker is not None:
            self._worker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _host(target: Target) -> Target:
    return target if target.kind == "llvm" else targets.host_target(cache=cache_folder())


def known_artifact(
    source: str, output: Path, target: Target, options: CompileOptions, threads: int
) -> Artifact | None:
    """Copy the artifact that was made from a source before into `output`; read no model."""
    around = artifact_cache.surroundings(target, _host(target), replace(options, threads=threads))
    name = around and artifact_cache.name_of(cache_folder(), source, around)
    return artifact_cache.fetch(cache_folder(), name, output) if name else None


def remember_source(
    source: str, ready: Prepared, target: Target, options: CompileOptions, threads: int
) -> None:
    """Let `known_artifact` find the artifact of a source."""
    around = artifact_cache.surroundings(target, _host(target), replace(options, threads=threads))
    if around:
        name = artifact_cache.key(ready, around)
        artifact_cache.keep_name(cache_folder(), source, around, name)
