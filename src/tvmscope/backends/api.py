"""What a backend is: a manifest, and a runner that lives in a worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tvmscope.core.precision import FLOAT32, Precision
from tvmscope.core.profile import DeviceTimes
from tvmscope.core.row import Family
from tvmscope.errors import ImportModelError
from tvmscope.measure.remote import Remote
from tvmscope.messages import Text, msg
from tvmscope.storage.files import map_npz


class Runner(Protocol):
    """A loaded model with its inputs in place. Lives in a worker process."""

    settings: dict[str, str]
    """The settings that were chosen, for the session."""

    def run(self) -> None:
        """Run once and wait until the result is there."""

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Run once and return the outputs by name."""


class Profiled(Protocol):
    """Runners that can time their kernels; their backend's manifest says so."""

    def profiler(self) -> Profiler:
        """The same model under an instrument."""


class DeviceTimer(Protocol):
    """Runners on a GPU also offer device time, measured by events."""

    def time_device(self, n: int) -> list[float]:
        """Seconds on the device for each of `n` runs."""


@dataclass(frozen=True)
class Span:
    """One kernel's call in a profiled run."""

    kernel: str
    source_ops: tuple[str, ...]
    seconds: float
    kind: str = "compute"
    flops: float | None = None
    bytes: float | None = None


@dataclass(frozen=True)
class Trace:
    """The kernel calls of one profiled run."""

    spans: tuple[Span, ...]
    host_s: float | None = None
    """Time in which no kernel ran, by the instrument's own clock or a calibration, never the
    remainder of the call's time; None if neither is available."""
    device: DeviceTimes | None = None
    """Where the instrument has a GPU's own time stamps."""


class Profiler(Protocol):
    """A model under an instrument.

    It may hold a copy of the model; the runner itself stays as it is, for plain runs in between.
    """

    how: str
    """The name of the instrument."""

    def run(self) -> float:
        """One run with the instrument on; its wall time in seconds."""

    def traces(self) -> list[Trace]:
        """End it: a trace per run, or a single one, the mean over all runs but the first."""


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """All a runner needs; plain data, so that it crosses the process boundary."""

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
    """Whose code it runs; see `core.row`."""
    kinds: tuple[str, ...]
    """Devices it can run on: cpu, cuda."""
    formats: tuple[str, ...]
    """Model formats it takes: torch, onnx."""
    load: Remote[[LoadRequest], Runner]
    """Makes the runner; called in the worker. `here(load)` refers to a function at hand."""
    unavailable: Callable[[str], Text | None]
    """For a device: None when usable, else the reason with what to install."""
    precisions: tuple[Precision, ...] = (FLOAT32,)
    cuda_precisions: tuple[Precision, ...] | None = None
    """On a GPU; None where they are the same."""
    graphs: bool = False
    """Whether it has a CUDA-graph mode that is worth its own row."""
    only_graphs: bool = False
    """Whether that is its only mode on a GPU."""
    needs_onnx: bool = False
    """Whether torch models must be exported to ONNX for it."""
    profiles: bool = False
    """Whether its runner has a `profiler()`."""
    profiles_cuda: bool = False
    """Whether it has one on a GPU with and without CUDA graphs, where PyTorch is there to read what
    the device ran."""
    compiles: str | None = None
    """The compiler pipeline whose artifact it runs; None for backends that need no artifact."""
    tuned: bool = False
    """Whether its artifact is compiled with what tuning records say; a row only where some do."""
    env: Callable[[int], dict[str, str]] = field(default=lambda threads: {})
    """Environment variables for the worker, given the thread count."""

    def precisions_on(self, device: str) -> tuple[Precision, ...]:
        """What it can compute in on a device."""
        if device == "cuda" and self.cuda_precisions is not None:
            return self.cuda_precisions
        return self.precisions


def idle_s(spans: Iterable[tuple[float, float]], start: float, end: float) -> float:
    """The time between `start` and `end` that lies in none of the (start, end) spans."""
    idle, last = 0.0, start
    for first, until in sorted(spans):
        idle += max(0.0, first - last)
        last = max(last, until)
    return idle + max(0.0, end - last)


def read_inputs(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The prepared model's inputs by name; all workers share the file's memory."""
    return map_npz(folder / "inputs.npz")


def decoy(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Another input of the same kind: its values in the opposite order, floats with another sign.

    A GPU that ran on it before has its results where the next run's belong: a launch that then does
    nothing leaves what is wrong.
    """
    other = value.reshape(-1)[::-1].reshape(value.shape).copy()
    return -other if value.dtype.kind == "f" else other


def require_onnx(folder: Path) -> Path:
    """The prepared model's ONNX file; a torch model may have failed to export."""
    file = folder / "model.onnx"
    if not file.exists():
        note = folder / "onnx_error.txt"
        said = note.read_text(encoding="utf-8").strip() if note.exists() else ""
        why = said or msg("no ONNX file was made")
        raise ImportModelError(msg("the model has no ONNX form: {why}", why=why))
    return file
