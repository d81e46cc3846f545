"""Raw timings; every statistic is derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvmscope.core.row import RowKey, Task
from tvmscope.messages import Text, marked

ITSELF = "its own first run"
"""A reference that proves nothing but that the same comes out again."""


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Worst case over all outputs; `error` is max|a-b| / max|ref|."""

    reference: str
    passed: bool
    max_abs: float | None
    error: float | None
    cosine: float | None
    tolerance: float
    noise: float | None = None
    """The model's own rounding noise, as an error, where the error is over the tolerance but within
    that noise: then `passed` is true, and `within_noise` too."""
    detail: Text | None = None
    """Why it failed: the output's name and what differs; None when passed."""

    @property
    def within_noise(self) -> bool:
        """Whether it passed by the model's noise alone, and not by the tolerance."""
        return self.passed and self.noise is not None


Status = Literal["ok", "wrong", "failed", "unavailable", "interrupted"]
_SAID = (
    marked("ok"), marked("wrong"), marked("failed"), marked("unavailable"), marked("interrupted"),
)  # fmt: skip
"""For translators: `messages.word` says them."""


Cause = Literal["unsupported", "crash", "hang", "exit", "memory", "time", "disk"]
"""What kind of failure a row ended with: its importer refused the model, or its process ended."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Seconds per run, grouped by interleaved round. Raw values only."""

    rounds_s: tuple[tuple[float, ...], ...]
    """One tuple per round; each value is the mean of `loops` back-to-back runs."""
    warmups_s: tuple[float, ...] = ()
    loops: int = 1
    clock: str = "wall"
    """`wall`, or `cuda-events` for device time between two events."""

    @property
    def values_s(self) -> tuple[float, ...]:
        """All values in the order they were taken."""
        return tuple(v for r in self.rounds_s for v in r)


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """The GPU while a row was measured."""

    sm_mhz: tuple[int, ...] = ()
    """The multiprocessors' clock right after each round."""
    held_down: tuple[str, ...] = ()
    """What kept the clock below its setting, such as `power cap`."""
    memory_bytes: int | None = None
    """What the GPU had back when the row's process ended, its CUDA context included."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One backend's row: what was asked, what came of it, and why."""

    task: Task
    status: Status
    reason: Text | None = None
    cause: Cause | None = None
    """For a failed row whose failure is of a known kind."""
    measurement: Measurement | None = None
    device_measurement: Measurement | None = None
    """CUDA only: the same rounds by events, beside the wall clock."""
    accuracy: Accuracy | None = None
    build_s: float | None = None
    load_s: float | None = None
    peak_memory_bytes: int | None = None
    cores_used: float | None = None
    """Cores that were busy on average while it was timed."""
    gpu: GpuUse | None = None
    settings: dict[str, Text] | None = None
    warnings: tuple[Text, ...] = ()
    items: int | None = None
    """Throughput mode only: how many items one run computes, the batch size."""

    @property
    def key(self) -> RowKey:
        return self.task.key
