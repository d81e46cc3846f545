"""Loads a model in a child process, so that code that crashes costs no more than an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvmscope.core.model import Prepared
from tvmscope.errors import ImportModelError, UsageError
from tvmscope.measure.confinement import scratch_folder
from tvmscope.measure.remote import remote
from tvmscope.measure.worker import Worker, WorkerDied
from tvmscope.messages import msg
from tvmscope.models.torch_module import pickle_module
from tvmscope.progress import Progress
from tvmscope.stages.options import Options

if TYPE_CHECKING:
    import tvmscope.models.prepare

_PREPARE = remote(lambda: tvmscope.models.prepare.prepare)
LOAD_TIMEOUT_S = 3600.0


def name_of(model: Any) -> str:
    """Return the name of the given model: the text, or a module's class."""
    return str(model) if isinstance(model, str | Path) else type(model).__name__


@contextmanager
def loaded(model: Any, options: Options, progress: Progress) -> Iterator[Prepared]:
    """Load the model, and report its warnings."""
    progress.stage(msg("load"), name_of(model))
    with prepared(model, options) as ready:
        for note in ready.model.notes:
            progress.note(note)
        yield ready


@contextmanager
def prepared(model: Any, options: Options) -> Iterator[Prepared]:
    """Yield the model, stored in a temporary folder."""
    with scratch_folder() as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        source, pickled = name_of(model), None
        if not isinstance(model, str | Path):
            if options.example_inputs is None:
                raise UsageError(
                    msg("a model given in memory needs example inputs: inputs=(x, ...)")
                )
            pickled = str(Path(scratch) / "module.pickle")
            pickle_module(model, options.example_inputs, Path(pickled))
        try:
            with Worker(str(_PREPARE), timeout_s=LOAD_TIMEOUT_S) as worker:
                worker.must_fit(_file_bytes(source))
                described = worker.call(_PREPARE, source, str(folder), options.load, pickled)
        except WorkerDied as e:
            raise ImportModelError(
                msg(
                    "'{source}' could not be loaded: {reason}; run its code by itself to see why",
                    source=source,
                    reason=e.reason,
                )
            ) from e
        yield Prepared(folder, described)


def _file_bytes(source: str) -> int:
    """Return the least memory that loading takes: a file of weights is read completely."""
    file = Path(source)
    return file.stat().st_size if file.suffix in (".onnx", ".pt2") and file.is_file() else 0
