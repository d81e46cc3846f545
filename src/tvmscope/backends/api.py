"""The interface of a backend: a manifest, and a runner that lives in a worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tvmscope.core.precision import FLOAT32, Precision
from tvmscope.core.profile import DeviceTimes, Edges, Products, Resources
from tvmscope.core.row import Family
from tvmscope.errors import ImportModelError
from tvmscope.measure.remote import Remote
from tvmscope.messages import Text, msg
from tvmscope.storage.files import map_npz


class Runner(Protocol):
    """A loaded model with its inputs set; it lives in a worker process.

    It may also have `profiler()`, which returns a `Profiler` for the same model, and on a GPU
    `time_device(n)`: seconds on the device for each of `n` runs.
    """

    settings: dict[str, str]
    """The settings that were chosen, for the session."""

    def run(self) -> None:
        """Run once and wait until the result is there."""

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Run once and return the outputs by name."""


@dataclass(frozen=True)
class Span:
    """One kernel's call in a profiled run."""

    kernel: str
    source_ops: tuple[str, ...]
    seconds: float
    kind: str = "compute"
    flops: float | None = None
    bytes: float | None = None
    products: Products | None = None
    resources: Resources | None = None
    symbol: str | None = None
    edges: Edges | None = None


@dataclass(frozen=True)
class Trace:
    """The kernel calls of one profiled run."""

    spans: tuple[Span, ...]
    host_s: float | None = None
    """Time in which no kernel ran, by the instrument's clock or a calibration, never the remainder
    of the call's time; None if neither is available."""
    device: DeviceTimes | None = None
    """How a GPU spent the run, if the instrument has the GPU's own time stamps."""


class Profiler(Protocol):
    """A model under an instrument.

    It may hold a copy of the model; the runner itself stays as it is, for plain runs in between.
    """

    @property
    def how(self) -> Text:
        """The name of the instrument."""

    def run(self) -> float:
        """Run once with the instrument on; return the wall time in seconds."""

    def traces(self) -> list[Trace]:
        """End profiling; return a trace per run, or one trace: the mean over all runs but the
        first."""


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """Everything a runner needs, as plain data that crosses the process boundary."""

    folder: str
    """The prepared model's folder (see `core.model.Prepared`)."""
    device: str
    precision: Precision
    threads: int
    graph: bool = False
    artifact: str | None = None
    """The artifact folder, for backends that run compiled artifacts."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A backend's manifest. Heavy libraries are imported only inside its functions."""

    name: str
    family: Family = "peer"
    """Whose code the backend runs; see `core.row`."""
    kinds: tuple[str, ...]
    """Devices that the backend can run on: cpu, cuda."""
    formats: tuple[str, ...]
    """Model formats that the backend takes: torch, onnx."""
    load: Remote[[LoadRequest], Runner]
    """Makes the runner; called in the worker. `here(load)` refers to a function of this module."""
    unavailable: Callable[[str], Text | None]
    """Takes a device; returns None if the backend is usable, else the reason and what to install.
    """
    precisions: tuple[Precision, ...] = (FLOAT32,)
    cuda_precisions: tuple[Precision, ...] | None = None
    """Precisions on a GPU; None if they are the same as on the CPU."""
    graphs: bool = False
    """Whether the backend has a CUDA-graph mode that is worth a row."""
    only_graphs: bool = False
    """Whether the CUDA-graph mode is its only mode on a GPU."""
    needs_onnx: bool = False
    """Whether torch models must be exported to ONNX for it."""
    profiles: bool = False
    """Whether its runner has a `profiler()`."""
    profiles_cuda: bool = False
    """Whether its runner has a `profiler()` on a GPU, with and without CUDA graphs, if PyTorch is
    installed to read the device's records."""
    profiles_graphs: bool = False
    """Whether its runner has a `profiler()` for CUDA graphs also without PyTorch."""
    compiles: str | None = None
    """The compiler pipeline whose artifact it runs; None for backends that need no artifact."""
    searches: bool = False
    """Whether its schedules are searched before it is compiled: that takes a budget and the device
    itself, so it is a row only if it is requested."""
    tuned: bool = False
    """Whether its artifact is compiled with tuning records; the row exists only if some records
    apply."""
    env: Callable[[int], dict[str, str]] = field(default=lambda threads: {})
    """Environment variables for the worker, given the thread count."""

    def precisions_on(self, device: str) -> tuple[Precision, ...]:
        """Return the precisions that the backend supports on a device."""
        if device == "cuda" and self.cuda_precisions is not None:
            return self.cuda_precisions
        return self.precisions


def idle_s(spans: Iterable[tuple[float, float]], start: float, end: float) -> float:
    """Return the time between `start` and `end` that is in none of the (start, end) spans."""
    idle, last = 0.0, start
    for first, until in sorted(spans):
        idle += max(0.0, first - last)
        last = max(last, until)
    return idle + max(0.0, end - last)


def read_inputs(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the prepared model's inputs by name; all workers share the file's memory."""
    return map_npz(folder / "inputs.npz")


def decoy(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return another input of the same kind: values in reverse order, floats with the other sign.

    After a run on it, a GPU's output buffers hold wrong values, so that a launch which does nothing
    leaves a wrong result.
    """
    other = value.reshape(-1)[::-1].reshape(value.shape).copy()
    return -other if value.dtype.kind == "f" else other


def require_onnx(folder: Path) -> Path:
    """Return the prepared model's ONNX file; a torch model may have failed to export."""
    file = folder / "model.onnx"
    if not file.exists():
        note = folder / "onnx_error.txt"
        said = note.read_text(encoding="utf-8").strip() if note.exists() else ""
        why = said or msg("no ONNX file was made")
        raise ImportModelError(msg("the model has no ONNX form: {why}", why=why))
    return file
