"""A row before it is measured: the planned row, and the entry that a worker loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tvmscope import extras
from tvmscope.backends.api import Backend, LoadRequest
from tvmscope.benchmark.entry import Entry
from tvmscope.core.model import Prepared
from tvmscope.core.options import CompileOptions
from tvmscope.core.prepared import outside_weights
from tvmscope.core.row import RowKey, Task, Variant
from tvmscope.core.target import Target
from tvmscope.core.tuning import Choice
from tvmscope.messages import Text
from tvmscope.stages.options import Options
from tvmscope.stages.targets import threads_of


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedRow:
    """A row of the future table: a variant of a backend on a target."""

    backend: Backend
    target: Target
    key: RowKey
    """The key on `target`; `changed` and `moved` keep both consistent."""
    unavailable: Text | None
    cross: bool = False
    """Whether its code cannot run here; it is still compiled, for a machine that can run it."""
    choices: Mapping[str, Choice] = field(default_factory=dict)
    """The choices of tuning records, for a row that exists because of them."""
    untuned: RowKey | None = None
    """For such a row, the planned row that differs only in the records, if there is one."""
    warnings: tuple[Text, ...] = ()
    compile: CompileOptions | None = None
    """How it is compiled, if it differs from the options; with its own choices."""
    threads: int | None = None
    """The number of threads, if it differs from the options."""

    @property
    def builds(self) -> bool:
        """Whether the row has something to compile."""
        return self.backend.compiles is not None and (self.unavailable is None or self.cross)

    @property
    def variant(self) -> Variant:
        return self.key.variant

    @property
    def has_profiler(self) -> bool:
        """Whether kernels can be timed; those of a CUDA graph by the device's own trace, or by a
        profiler that needs no PyTorch."""
        on_gpu = self.key.device == "cuda"
        if on_gpu and self.backend.profiles_cuda and extras.missing("torch") is None:
            return True
        return self.backend.profiles and (not self.variant.graph or self.backend.profiles_graphs)

    def changed(self, **fields: Any) -> PlannedRow:
        """Return the row of another variant: these fields are replaced."""
        return replace(self, key=replace(self.key, variant=replace(self.variant, **fields)))

    def moved(self, target: Target) -> PlannedRow:
        """Return the row of the same variant on another target."""
        return replace(self, target=target, key=RowKey.of(self.variant, target))


def unbuilt_entry(row: PlannedRow, ready: Prepared, options: Options) -> Entry:
    """Return the entry of a row, without the artifact that it may need."""
    threads = row.threads or threads_of(options)
    return Entry(
        task=Task(
            model=ready.model.name,
            digest=ready.model.digest,
            key=row.key,
            threads=threads,
            shapes=ready.model.shapes,
        ),
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
        need_bytes=_need_bytes(ready),
        items=items_per_run(options, ready.model.shapes),
    )


def _need_bytes(ready: Prepared) -> int:
    """Return the bytes of inputs, outputs and the model with its weights, without activations."""
    model = ready.pt2_path if ready.model.format == "torch" else ready.onnx_path
    files = (ready.inputs_path, ready.reference_path, model)
    inside = sum(file.stat().st_size for file in files if file.is_file())
    return inside + outside_weights.bytes_beside(ready.folder)


def built_entry(row: PlannedRow, ready: Prepared, options: Options, artifacts: Path) -> Entry:
    """Return the entry of a row whose artifact, if it needs one, was built earlier."""
    entry = unbuilt_entry(row, ready, options)
    if not row.builds:
        return entry
    built = replace(entry.request, artifact=str(artifacts / row.key.folder_name))
    return replace(entry, request=built)


def items_per_run(options: Options, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Return the batch in throughput mode: the first dimension of the first input that has one."""
    if options.measure.mode != "throughput":
        return None
    return next((shape[0] for shape in shapes.values() if shape), 1)
