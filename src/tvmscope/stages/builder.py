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
from tvmscope.runtime import tvm_compat
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
    """A context manager; a compilation that crashes costs its own variant only."""

    def __init__(self, ready: Prepared, threads: int) -> None:
        self.ready = ready
        self.threads = threads
        self._worker: Worker | None = None
        self._closed = False

    def build(self, output: Path, target: Target, options: CompileOptions) -> Artifact:
        """Compile one variant into the folder `output`."""
        host = target if target.kind == "llvm" else targets.host_target(cache=cache_folder())
        own = replace(options, threads=self.threads)
        built = self._call(_BUILD, self.ready, output.absolute(), target, host, own)
        return replace(built, path=output)

    def tasks(self, target: Target, options: CompileOptions, folder: Path) -> list[TuningTask]:
        """What can be tuned in the model; the kernels' files go into `folder`."""
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
            if self.ready.model.format != "torch":
                self._worker.call(IMPORT_WITHOUT_TORCH)
        return self._worker

    def pause(self) -> None:
        """Pause it while something is measured; the next build continues."""
        if self._worker is not None:
            self._worker.pause()

    def close(self) -> None:
        """End the process, if there is one; there will be no other."""
        self._closed = True
        if self._worker is not None:
            self._worker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
